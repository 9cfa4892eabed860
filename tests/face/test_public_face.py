"""What `import scalewright` gives: light, the verbs' own numbers, a page and a notebook that run."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

import scalewright
from scalewright.orchestrator.analysis.fits import FitRequest
from scalewright.orchestrator.cli import run
from scalewright.orchestrator.plan.make import plan_file, record

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "orchestrator"))
from planted_study import YAML, plant, write_results  # noqa: E402

DEMO = YAML.replace("experiment: planted", "experiment: demo")
HEAVY = ("numpy", "pandas", "scipy", "matplotlib", "sqlalchemy", "torch", "lightning", "typer", "pydantic")


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    return plant(tmp_path_factory.mktemp("face") / "demo", text=DEMO).parent


@pytest.fixture(autouse=True)
def in_study(study, monkeypatch):
    monkeypatch.chdir(study)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)


@pytest.fixture(scope="module")
def demo(study):
    return scalewright.open(study)


def printed(capsys, *words):
    capsys.readouterr()
    assert run([str(word) for word in words]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_import_alone_brings_nothing_and_the_names_are_few():
    code = "import sys, scalewright; print(*dir(scalewright)); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, modules = (line.split() for line in done.stdout.splitlines())
    assert names == ["Comparison", "Experiment", "Fit", "compare", "figure", "fit", "open"]
    assert {name.partition(".")[0] for name in modules} & set(HEAVY) == set()
    assert [name for name in modules if name.startswith("scalewright.")] == []


def test_opening_and_reading_frames_needs_no_torch_and_no_matplotlib(study):
    code = f"import sys, scalewright; scalewright.open({str(study)!r}).final_losses(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & {"torch", "lightning", "matplotlib"} == set()


@pytest.mark.parametrize(
    "law,options,flags",
    [
        ("chinchilla", {"by": "none"}, ["--by", "none"]),
        ("pure-power", {}, []),
        ("power-shared", {"level": 0.8}, ["--level", "0.8"]),
        (
            "chinchilla",
            {"by": "none",
             "objective": "log-l2", "fixed": {"E": 0.9}, "bounds": {"alpha": (0.1, 0.9)}, "n_convention": "total",
             "holdout": "n_params > 50000", "exclude_worst": 1, "asymmetry": 0.5, "at": [1e12]},
            ["--by", "none",
             "--objective", "log-l2", "--fix", "E=0.9", "--bounds", "alpha=0.1:0.9", "--n-convention", "total",
             "--holdout", "n_params > 50000", "--exclude-worst", "1", "--asymmetry", "0.5", "--at", "1e12"],
        ),
    ],
)  # fmt: skip
def test_a_fit_is_that_of_the_verb(demo, capsys, law, options, flags):
    fit = demo.fit(law, **options)
    assert json.loads(json.dumps(fit.value)) == printed(capsys, "fit", "--law", law, *flags, "--json")
    ids = set(fit.params["fit_id"])
    stored = demo.fits()
    kept = stored[stored["fit_id"].isin(ids)]
    columns = ["fit_id", "parameter"]
    own = fit.params.set_index(columns)[["value", "low", "high", "identified"]].sort_index().astype(float)
    again = kept.set_index(columns)[["value", "low", "high", "identified"]].sort_index().astype(float)
    pd.testing.assert_frame_equal(own, again)


def test_every_option_of_a_fit_can_be_given():
    theirs = {name for name in FitRequest.__dataclass_fields__ if name not in ("law", "n_bootstrap", "profile")}
    assert set(scalewright.face.FitOptions.__annotations__) == (theirs - {"above"}) | {"asymmetry"}


@pytest.mark.parametrize("level,flags", [(0.95, []), (0.8, ["--level", "0.8", "--curve", "interpolated"])])
def test_a_comparison_is_that_of_the_verb(demo, capsys, level, flags):
    comparison = demo.compare("angpt", "gpt+", level=level, curve="interpolated" if flags else "fitted")
    told = printed(capsys, "compare", "angpt", "gpt+", *flags, "--json")
    assert json.loads(json.dumps(comparison.value)) == told
    first = comparison.speed_ups.iloc[0]
    assert (first["unit"], first["scope"], first["ratio"]) == ("tokens", "pooled", told["pooled"][0]["ratio"])
    assert first["low"] < 1.6 < first["high"]
    assert run(["compare", "angpt", "gpt+", *flags]) == 0
    assert capsys.readouterr().out.startswith(comparison.sentence + "\n")
    assert f"{100 * level:g}% interval)" in comparison.sentence and comparison.warnings


def test_runs_and_curves_are_those_of_the_verbs(demo, capsys):
    told = printed(capsys, "runs", "--where", "n_params < 5000", "--sort", "-loss_nats", "--json")
    frame = demo.runs(where="n_params < 5000", sort=["-loss_nats"])
    assert [row["run_id"] for row in told] == frame["run_id"].tolist() and 0 < len(frame) < len(demo.runs())
    assert demo.evaluations().query("final")["loss_nats"].tolist() == [
        pytest.approx(demo.final_losses().set_index("run_id").loc[run_id, "loss_nats"])
        for run_id in demo.evaluations().query("final")["run_id"]
    ]
    with pytest.raises(ValueError, match="no metric 'loss_nats' was logged"):
        demo.curves()


def test_the_functions_on_frames_give_what_the_experiment_gives(demo):
    losses = demo.final_losses()
    numbers = ["label", "parameter", "value", "low", "high"]
    own, free = demo.fit("pure-power").params, scalewright.fit(losses, "pure-power").params
    pd.testing.assert_frame_equal(own[numbers], free[numbers])
    assert free["fit_id"].isna().all()
    assert scalewright.compare(losses, "angpt", "gpt+").sentence == demo.compare("angpt", "gpt+").sentence
    fewer = scalewright.fit(losses[losses["size"] != "large"], "pure-power").params
    assert (fewer["n"] == 6).all() and (fewer["value"] != free["value"]).all()


def test_a_prediction_is_the_laws_and_asks_whose_it_is(demo):
    fit = demo.fit("chinchilla")
    value = {row.parameter: row.value for row in fit.params.query("label == 'angpt'").itertuples()}
    told = fit.predict(2e4, [2e5, 3e5], label="angpt")
    by_hand = [value["E"] + value["A"] * 2e4 ** -value["alpha"] + value["B"] * d ** -value["beta"] for d in (2e5, 3e5)]
    assert told["loss_nats"].tolist() == pytest.approx(by_hand)
    assert (told["low"] < told["loss_nats"]).all() and (told["loss_nats"] < told["high"]).all()
    with pytest.raises(ValueError, match="label None: expected one that was fitted: gpt\\+, angpt"):
        fit.predict(2e4, 2e5)


def test_figures_are_those_of_the_page_by_name(demo):
    names = demo.figures()["name"].tolist()
    assert {"speed-ups", "loss-against-compute", "loss-against-tokens", "layers", "training-curves"} <= set(names)
    assert isinstance(demo.figure("layers"), Figure)
    assert isinstance(scalewright.figure(demo.final_losses(), "speed-ups"), Figure)
    with pytest.raises(ValueError, match="no figure 'speedups' of demo; these can be drawn: speed-ups, "):
        demo.figure("speedups")


@pytest.mark.parametrize(
    "ask,words",
    [
        (lambda e: e.fit("chinchila"), "unknown law 'chinchila'"),
        (lambda e: e.fit(objectiv="huber"), "unknown option of fit 'objectiv'"),
        (lambda e: e.compare("angpt", "gpt"), "unknown method 'gpt'"),
        (lambda e: e.runs(where="los < 3"), "los"),
        (lambda e: scalewright.open("nowhere"), "nowhere: no such folder or file"),
        (lambda e: scalewright.open(".", "other"), "no experiment 'other'"),
        (lambda e: scalewright.fit(e.final_losses(), holdout="n_tokens > 1"), "mark the column holdout"),
        (lambda e: scalewright.fit(e.final_losses().drop(columns="loss_nats")), "loss_nats"),
    ],
)
def test_a_mistake_is_a_value_error_of_one_line(demo, ask, words):
    with pytest.raises(ValueError) as told:
        ask(demo)
    assert words in str(told.value) and "\n" not in str(told.value)


def test_places_that_hold_an_experiment(study, demo, tmp_path, monkeypatch):
    for place in (study, study / "experiments.yaml", study / "runs.sqlite", f"sqlite:///{study / 'runs.sqlite'}"):
        assert scalewright.open(place).name == "demo"
    other = tmp_path / "two"
    plant(other, text=DEMO)
    assert scalewright.open(other).final_losses()["loss_nats"].notna().all()
    (other / "second.yaml").write_text(DEMO.replace("experiment: demo", "experiment: second"))
    plan, of = plan_file(other / "second.yaml")
    record(plan, of)
    assert scalewright.open(other).name == "demo" and scalewright.open(other, "second").name == "second"
    with pytest.raises(ValueError, match="no experiment is named; experiments there: demo, second"):
        scalewright.open(other / "runs.sqlite")


def test_a_run_that_ends_is_seen_after_a_sync(tmp_path):
    plant(tmp_path / "late", text=DEMO, n_left=1)
    late = scalewright.open(tmp_path / "late")
    assert late.final_losses()["loss_nats"].isna().sum() == 1
    plan, of = plan_file(tmp_path / "late" / "experiments.yaml")
    write_results(of.run_dir(plan.runs[-1].run_id), plan.runs[-1], 1.0)
    late.sync()
    assert late.final_losses()["loss_nats"].isna().sum() == 0


def test_what_a_notebook_shows_is_html_without_a_users_tags(demo):
    for shown in (demo, demo.compare("angpt", "gpt+"), demo.fit("pure-power")):
        html = shown._repr_html_()
        assert html.startswith("<") and "<table" in html and repr(shown)


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


def test_the_page_runs_from_top_to_bottom(capsys):
    names: dict[str, object] = {}
    for code in python_blocks(ROOT / "docs" / "python.md"):
        exec(compile(code, "python.md", "exec"), names)  # noqa: S102
    assert isinstance(names["figure"], Figure) and "anGPT over GPT+" in capsys.readouterr().out


def test_the_page_names_everything_that_is_public():
    text = (ROOT / "docs" / "python.md").read_text()
    methods = [name for name in vars(scalewright.Experiment) if not name.startswith("_") and name != "name"]
    options = list(scalewright.face.FitOptions.__annotations__)
    assert [name for name in [*scalewright.__all__, *methods, *options] if not re.search(rf"\b{name}\b", text)] == []


def run_cell(source, names):
    """Run a cell as a notebook does; return the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)  # noqa: S102
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)  # noqa: S307


def test_the_notebook_runs_and_each_cell_shows_something():
    notebook = json.loads((ROOT / "docs" / "example.ipynb").read_text())
    assert (notebook["nbformat"], len({cell["id"] for cell in notebook["cells"]})) == (4, len(notebook["cells"]))
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            shown = run_cell("".join(cell["source"]), names)
            assert isinstance(shown, Figure) or hasattr(shown, "_repr_html_"), cell["source"]
