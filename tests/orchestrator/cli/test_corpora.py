"""Other texts under `evaluation.corpora`: from the key in the YAML to the loss in the database and on the page."""

import json
import math

import numpy as np
import pytest
import torch

from scalewright.orchestrator.cli import run
from scalewright.orchestrator.data import manifest as manifests
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.train.inspect_run import load_run

GRID = """
experiment: c
sizes: {s: {width: 16, depth: 1, heads: 2}}
budgets: [3k]
methods: [pre-ln]
lr: 0.01
batch: 4
context: 32
data: %s
evaluation: {n_windows: %s, at: [50%%], corpora: {digits: digits.jsonl, words: [a.jsonl, b.jsonl]}}
"""
BPE = "{tokenizer: bpe, vocab_size: 300}"


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drawn = np.random.default_rng(0).integers(0, 10, size=(12, 90))
    lines = {"digits": ["".join(map(str, row)) for row in drawn.tolist()]}
    lines |= {
        "a": ["the whale swam " * 9, "the ship sank " * 7],
        "b": ["\xe9t\xe9 " * 30],
    }
    for name, texts in lines.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    return tmp_path


def measured(capsys, data, n_windows=64):
    """By text: its row of the table of evaluations."""
    with open("c.yaml", "w") as file:
        file.write(GRID % (data, n_windows))
    assert run(["submit", "c.yaml", "--executor", "debug"]) == 0
    capsys.readouterr()
    assert run(["query", "select * from evaluations where final", "--json"]) == 0
    return {row["split"]: row for row in json.loads(capsys.readouterr().out)}


@pytest.mark.parametrize("data", ["{tokenizer: bytes}", BPE])
def test_the_loss_on_each_text_is_that_of_its_tokens_and_bytes(study, capsys, data):
    rows = measured(capsys, data)
    assert set(rows) == {"validation", "digits", "words"}
    (run_id,) = (path.name for path in (study / "runs").iterdir())
    loaded = load_run(Study.at(study), run_id)
    assert rows["validation"]["loss_nats"] != rows["digits"]["loss_nats"] != rows["words"]["loss_nats"]
    for name in ("digits", "words"):
        folder = loaded.job.settings.corpora[name]
        manifest = manifests.read(folder)
        splits = [manifest.train, manifest.validation]
        ids = [shard for split in ("train", "validation") for shard in manifests.open_split(manifest, folder, split)]
        windows = [part[start : start + 33] for part in ids for start in range(0, len(part) - 32, 32)]
        batch = torch.tensor(np.array(windows).astype(np.int64))
        with torch.no_grad():
            logits = loaded.model(batch[:, :-1])
        nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).item()
        assert rows[name]["n_tokens_evaluated"] == len(windows) * 32
        assert rows[name]["loss_nats"] == pytest.approx(nats, rel=1e-5)
        n_bytes, n_tokens = (sum(getattr(split, key) for split in splits) for key in ("n_bytes", "n_tokens"))
        assert rows[name]["bits_per_byte"] == pytest.approx(nats / math.log(2) * n_tokens / n_bytes, rel=1e-5)


def test_they_are_on_the_page_and_change_no_id_no_result_and_no_curve(study, capsys):
    rows = measured(capsys, "{tokenizer: bytes}", n_windows=8)
    assert {row["n_tokens_evaluated"] for row in rows.values()} == {8 * 32}
    assert run(["runs", "c", "--json"]) == 0
    (before,) = json.loads(capsys.readouterr().out)
    assert before["loss_nats"] == rows["validation"]["loss_nats"]
    assert run(["report", "c"]) == 0
    page = (study / "figures" / "c" / "index.html").read_text()
    assert "Final loss on other texts" in page and "digits" in page
    assert run(["db", "rebuild"]) == 0
    capsys.readouterr()
    (study / "c.yaml").write_text((study / "c.yaml").read_text().replace("words: [a.jsonl, b.jsonl]", "more: a.jsonl"))
    assert run(["plan", "c.yaml"]) == 0
    assert "0 new runs, 1 known" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("corpora", "said"),
    [
        ("{validation: digits.jsonl}", "validation is what the split of the training data is called"),
        ("{a/b: digits.jsonl}", "must be a name without /"),
        ("{digits: none.jsonl}", "c.yaml:10: evaluation.corpora.digits: "),
        ("digits.jsonl", "expected texts by name"),
    ],
)
def test_what_is_no_text_is_said_at_its_line(study, capsys, corpora, said):
    text = GRID % ("{tokenizer: bytes}", 64)
    (study / "c.yaml").write_text(text[: text.index("corpora:")] + f"corpora: {corpora}}}\n")
    assert run(["plan", "c.yaml"]) == 1
    line = capsys.readouterr().err.strip()
    assert said in line and "\n" not in line
