"""A method, gate or law of a user's own file: from the YAML or the flag to the trained run, its page and its fit."""

import json

import pytest

from scalewright.models.errors import ModelError
from scalewright.models.spec import ModelSpec
from scalewright.orchestrator.cli import run
from scalewright.orchestrator.config.load import load_experiment

METHOD = """
from scalewright.models.gating import GATES, Gate
from scalewright.models.methods.method import Method
from scalewright.models.wiring import Wiring


def wiring(layer, depth, options):
    return Wiring(pre="rms", branch_scale=0.5 / (layer + 1))


HALF = Method(doc="Pre-LN with ever smaller branches", source="mine", wiring=wiring)
SAME = Method(doc="Pre-LN", source="mine", wiring=lambda layer, depth, options: Wiring(pre="rms"))
NGPT_LIKE = Method(doc="-", source="mine", wiring=wiring, baseline="gpt+")
BAD = Method(doc="-", source="mine", wiring=lambda layer, depth, options: layer / 0)
NOT = Method(doc="-", source="mine", wiring=lambda layer, depth, options: None)
LATE = Gate(doc="GPAS that starts at 2", source="mine", options=GATES["gpas"].options)
"""
GRID = """
experiment: own
sizes: {s: {width: 16, depth: 2, heads: 2}}
budgets: [3k]
lr: 0.01
methods: %s
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(METHOD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(study, methods):
    (study / "e.yaml").write_text(GRID % methods)


def refusal(methods, study, capsys):
    write(study, methods)
    assert run(["plan", "e.yaml"]) == 1
    return capsys.readouterr().err.strip()


def planned(study):
    return {method.name: method for method in load_experiment(study / "e.yaml").methods}


def test_a_run_of_a_users_method_is_trained_without_the_file(study, capsys):
    """The wiring is the file's: the same equation under another name gives the same loss to the last bit."""
    write(
        study, "[pre-ln, ./mine.py:SAME, ./mine.py:HALF, {method: pre-ln, gate: './mine.py:LATE', experimental: true}]"
    )
    assert run(["submit", "e.yaml", "--executor", "debug"]) == 0
    (study / "mine.py").unlink()
    capsys.readouterr()
    assert run(["runs", "own", "--json"]) == 0
    rows = {row["label"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == {"pre-ln", "SAME", "HALF", "pre-ln+LATE"}
    losses = {label: row["loss_nats"] for label, row in rows.items()}
    assert losses["SAME"] == losses["pre-ln"] != losses["HALF"]
    assert run(["show", rows["HALF"]["run_id"]]) == 0
    page = capsys.readouterr().out
    assert "mine.py:HALF" in page and "model.code.mine.py" in page and " lines, SHA-256 " in page
    assert "branch_scale" not in page
    assert run(["compare", "HALF", "pre-ln", "own"]) in (0, 1)
    assert "Traceback" not in capsys.readouterr().err


def test_another_text_is_another_run_and_the_label_stays(study):
    write(study, "[./mine.py:HALF]")
    first = planned(study)["HALF"].code
    (study / "mine.py").write_text(METHOD.replace("0.5 /", "0.6 /"))
    second = planned(study)["HALF"].code
    assert first != second
    ids = [ModelSpec(16, 2, 2, 256, 64, method="mine.py:HALF", code=code).to_dict() for code in (first, second)]
    assert ids[0] != ids[1] and ModelSpec.from_dict(ids[0]).wiring(1).branch_scale == 0.25
    assert "code" not in ModelSpec(16, 2, 2, 256, 64).to_dict()


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ("[./none.py:A]", "e.yaml:6: methods[0]: none.py: no such file"),
        ("[./mine.py:MINE]", "(it has: HALF, SAME, NGPT_LIKE, BAD, NOT)"),
        ("[{method: pre-ln, gate: './mine.py:HALF'}]", "mine.py has no Gate of the name 'HALF' (it has: LATE)"),
        ("[./mine.py:BAD]", "mine.py:BAD: ZeroDivisionError: division by zero"),
        ("[./mine.py:NOT]", "mine.py:NOT: wiring returns NoneType, expected Wiring"),
        ("[gpt+, ./mine.py:NGPT_LIKE]", "its baseline is gpt+; name the pair under `compare:`"),
        ("[{method: pre-ln, code: {a: b}}]", "unknown key"),
        ("[./other/mine.py:HALF, ./mine.py:HALF]", "two files of this name with different text; rename one"),
        ("[./torn.py:A]", "torn.py:1: "),
        ("[./raises.py:A]", "raises.py: RuntimeError: no: never"),
        ("[./bytes.py:A]", "bytes.py: not UTF-8 text"),
        ("[./large.py:A]", "large.py: 1000001 bytes"),
    ],
)
def test_what_cannot_be_taken_is_said_in_one_line_at_its_place(study, capsys, methods, said):
    (study / "other").mkdir()
    (study / "other" / "mine.py").write_text(METHOD + "\n")
    (study / "torn.py").write_text("def (")
    (study / "raises.py").write_text("raise RuntimeError('no:\\nnever')")
    (study / "bytes.py").write_bytes(b"\xff\xfe\xff")
    (study / "large.py").write_text("#" * 1_000_001)
    line = refusal(methods, study, capsys)
    assert said in line and "\n" not in line and line.startswith("scalewright: e.yaml:6: methods")


def test_a_spec_whose_text_is_gone_says_so():
    with pytest.raises(ModelError, match="the text of mine.py is missing"):
        ModelSpec(16, 2, 2, 256, 64, method="mine.py:HALF")


LAW = """
from scalewright.fitting.laws.additive import AdditiveLaw, Term

MINE = AdditiveLaw("mine", "as chinchilla", "mine", "L = E + A N^-alpha + B D^-beta",
                   (Term("E"), Term("A", "alpha", "n_params"), Term("B", "beta", "n_tokens")))
TAKEN = AdditiveLaw("power", "-", "mine", "L = E", (Term("E"),))
"""


def numbers(value, key):
    if isinstance(value, dict):
        return [value[key] for _ in [key] if key in value] + [
            one for inner in value.values() for one in numbers(inner, key)
        ]
    return [one for inner in value for one in numbers(inner, key)] if isinstance(value, list) else []


def test_a_law_of_a_file_is_fitted_as_one_of_the_table(study, capsys):
    rows = ["n_params,n_tokens,loss_nats"]
    rows += [f"{n},{d},{1.7 + 400 * n**-0.34 + 410 * d**-0.28}" for n in (1e6, 1e7, 1e8) for d in (1e8, 1e9, 1e10)]
    (study / "points.csv").write_text("\n".join(rows))
    (study / "law.py").write_text(LAW)
    assert run(["import", "points.csv", "--as", "known"]) == 0
    capsys.readouterr()
    fits = []
    for law in ("./law.py:MINE", "chinchilla"):
        assert run(["fit", "known", "--law", law, "--json"]) == 0
        fits.append(json.loads(capsys.readouterr().out))
    own, known = (numbers(fit, "alpha") for fit in fits)
    assert own == known and own[0]["value"] == pytest.approx(0.34, abs=0.001)
    for law, said in (("./law.py:TAKEN", "a law named 'power' is known"), ("./law.py:X", "(it has: MINE, TAKEN)")):
        assert run(["fit", "known", "--law", law]) == 1
        assert said in capsys.readouterr().err
