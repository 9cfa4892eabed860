"""The verbs init, plan and data prepare, through the command's own entry."""

import json
from pathlib import Path

import pytest

from scalewright.orchestrator.cli import run
from scalewright.orchestrator.plan.bill import CHECKPOINTS
from scalewright.orchestrator.train.checkpoint import KEPT

GRID = """\
experiment: verbs
data: text.txt
sizes:
  small: { width: 32, depth: 2, heads: 2 }
budgets: [2k, 4k]
methods: [gpt+]
batch: 4
context: 16
lr: 0.02
evaluation: { n_windows: 4 }
"""


@pytest.fixture()
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    sentences = [f"Sentence number {n} of a text that is long enough to have windows.\n\n" for n in range(2000)]
    (tmp_path / "text.txt").write_text("".join(sentences))
    (tmp_path / "experiments.yaml").write_text(GRID)
    return tmp_path


def test_plan_prints_the_bill_on_stdout_and_the_talk_on_stderr(folder, capsys):
    assert run(["plan"]) == 0
    out, err = capsys.readouterr()
    assert "verbs: 2 runs" in out
    assert "gpt+" in out
    assert "to do: 2 of 2 runs" in err
    assert "2 new runs, 0 known ones" in err
    assert (folder / "runs.sqlite").exists()


def test_plan_again_finds_every_run(folder, capsys):
    run(["plan"])
    capsys.readouterr()
    assert run(["plan", "experiments.yaml"]) == 0
    assert "0 new runs, 2 known ones" in capsys.readouterr().err


def test_a_dry_run_records_nothing(folder, capsys):
    assert run(["plan", "--dry-run"]) == 0
    assert not (folder / "runs.sqlite").exists()


def test_json_is_one_object_with_every_run(folder, capsys):
    assert run(["plan", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert out["experiment"] == "verbs"
    assert [item["budget"] for item in out["runs"]] == ["2k", "4k"]
    assert {item["state"] for item in out["runs"]} == {"new"}
    assert out["total"]["runs"] == 2


def test_plan_works_from_another_folder(folder, tmp_path_factory, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert run(["plan", str(folder / "experiments.yaml")]) == 0
    assert (folder / "runs.sqlite").exists()


def test_a_missing_corpus_is_located_in_the_yaml(folder, capsys):
    (folder / "text.txt").unlink()
    assert run(["plan"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("scalewright: experiments.yaml:2: data: ")
    assert "text.txt" in err
    assert len(err.splitlines()) == 1


def test_a_mistake_costs_exit_code_1_and_one_line(folder, capsys):
    (folder / "experiments.yaml").write_text(GRID.replace("gpt+", "gtp+"))
    assert run(["plan"]) == 1
    err = capsys.readouterr().err
    assert err.startswith('scalewright: experiments.yaml:6: methods[0]: unknown method "gtp+"; did you mean "gpt+"?')
    assert len(err.splitlines()) == 1


def test_an_unknown_option_is_a_usage_error(folder, capsys):
    assert run(["plan", "--jsn"]) == 2


def test_prepare_makes_shards_once(folder, capsys):
    assert run(["data", "prepare", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["vocab_size"] == 256
    assert [split["split"] for split in first["splits"]] == ["train", "validation"]
    assert run(["data", "prepare", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first


def test_shards_made_before_are_used_by_their_folder(folder, capsys):
    run(["data", "prepare", "--json"])
    made = json.loads(capsys.readouterr().out)
    (folder / "experiments.yaml").write_text(GRID.replace("text.txt", f"{{ dir: {made['folder']} }}"))
    (folder / "text.txt").unlink()
    assert run(["plan"]) == 0


def test_a_folder_without_shards_is_located(folder, capsys):
    (folder / "experiments.yaml").write_text(GRID.replace("text.txt", "{ dir: nowhere }"))
    assert run(["plan"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("scalewright: experiments.yaml:2: data: ")
    assert "nowhere" in err


def test_a_shard_of_another_tokenizer_is_refused_before_anything_is_planned(folder, capsys):
    for tokenizer in ("bytes", "bpe:300"):
        run(["data", "prepare", "--corpus", "text.txt", "--tokenizer", tokenizer, "--out", tokenizer[:3]])
    (mine,), (other,) = (list(Path(name).glob("*/train-*.bin")) for name in ("byt", "bpe"))
    mine.write_bytes(other.read_bytes())
    (folder / "experiments.yaml").write_text(GRID.replace("text.txt", "{ dir: byt }"))
    capsys.readouterr()
    assert run(["plan"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("scalewright: experiments.yaml:2: data: ") and "made by tokenizer" in err
    assert not (folder / "runs.sqlite").exists()


def test_shards_can_be_made_of_files_without_an_experiment(folder, capsys):
    assert run(["data", "prepare", "--corpus", "text.txt", "--tokenizer", "bpe:300", "--out", "shards", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["vocab_size"] == 300
    (folder / "experiments.yaml").write_text(GRID.replace("text.txt", "{ dir: shards }"))
    assert run(["plan", "--dry-run"]) == 0


def test_init_writes_a_starter_that_plans(folder, capsys):
    assert run(["init", "new"]) == 0
    assert capsys.readouterr().out.strip() == str(Path("new") / "experiments.yaml")
    assert run(["plan", "--dry-run", "new/experiments.yaml"]) == 0


def test_init_never_overwrites(folder, capsys):
    before = (folder / "experiments.yaml").read_text()
    assert run(["init"]) == 1
    assert "experiments.yaml: exists already" in capsys.readouterr().err
    assert (folder / "experiments.yaml").read_text() == before


def test_a_plan_fills_an_empty_database_file(folder, capsys):
    (folder / "runs.sqlite").touch()
    assert run(["plan"]) == 0
    assert "2 new runs, 0 known ones" in capsys.readouterr().err


def test_the_demo_brings_its_own_grid_where_there_is_none(tmp_path, monkeypatch, capsys):
    from scalewright.orchestrator.cli import demo

    seen = []
    monkeypatch.setattr(demo, "run_demo", lambda file: seen.append(file) or 0)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        run(["demo"])
    root = Path(__file__).parents[3]
    assert (tmp_path / "experiments.yaml").read_text() == (root / "experiments.yaml").read_text()
    with pytest.raises(SystemExit):
        run(["demo", "mine.yaml"])
    assert seen == [Path("experiments.yaml"), Path("mine.yaml")] and not (tmp_path / "mine.yaml").exists()


def test_the_bill_has_gpu_hours_their_price_and_disk_and_a_limit_stops_it(folder, capsys):
    assert CHECKPOINTS == KEPT
    profiles = """
resources:
  profiles:
    cpu: {}
    gpu: { gpus: 2, at_once: 4, flops_per_s: 1e5, price: 3 }
  rules: [{ use: gpu, methods: gpt+ }, { use: cpu }]
"""
    (folder / "experiments.yaml").write_text(GRID.replace("[gpt+]", "[gpt+, pre-ln]") + profiles)
    assert run(["plan", "--json", "--dry-run"]) == 0
    plan = json.loads(capsys.readouterr().out)
    runs = [one for one in plan["runs"] if one["label"] == "gpt+"]
    hours = sum(one["flops_total"] / 1e5 + 0.003 * one["n_steps"] for one in runs) / 3600 * 2 / 4
    assert plan["total"]["gpu_hours"] == pytest.approx(hours)
    assert plan["total"]["price"] == pytest.approx(3 * hours)
    assert plan["total"]["disk_bytes"] == sum(2 * 12 * one["n_params_total"] for one in plan["runs"])

    limit = f"{hours * 0.99:.6g}"
    for verb in (["plan"], ["submit"], ["submit", "--dry-run"]):
        assert run([*verb, "--max-gpu-hours", limit]) == 1
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and f"4 runs take about {hours:.3g} GPU hours, over --max-gpu-hours {limit}" in err
    assert not (folder / "runs.sqlite").exists()
    assert run(["plan", "--max-gpu-hours", f"{hours * 1.01:.6g}"]) == 0
    err = capsys.readouterr().err
    assert f"GPU hours: {hours:.3g}, {3 * hours:,.2f} at the profiles' price; checkpoints: up to " in err


def test_without_gpus_the_bill_has_no_gpu_hours_and_without_a_price_no_price(folder, capsys):
    assert run(["plan", "--max-gpu-hours", "0"]) == 0
    err = capsys.readouterr().err
    assert "GPU hours" not in err and "checkpoints: up to" in err
    (folder / "experiments.yaml").write_text(GRID + "resources: {profiles: {gpu: {gpus: 1}}}\n")
    assert run(["plan"]) == 0
    assert "at the profiles' price" not in capsys.readouterr().err
