"""`tune:` from the YAML to the page: a sweep first, then the grid at its best rates, and how it was tuned is said.

Runs are planned by the command; what they would have measured is written by hand.
"""

import json
import math

import pandas as pd
import pytest
from tiny_study import write_study

from scalewright.orchestrator.analysis.tuning import read_sweep
from scalewright.orchestrator.cli import demo
from scalewright.orchestrator.runs.journal import Journal

YAML = """
experiment: tuned
data: {corpus: text.txt, tokenizer: bytes, validation: 0.3}
sizes:
  s: {width: 16, depth: 1, heads: 2}
  m: {width: 32, depth: 1, heads: 2}
  l: {width: 64, depth: 1, heads: 2}
budgets: [4k, 8k]
methods: [gpt+, angpt, {method: pre-ln, lr: 0.003}]
compare: [angpt over gpt+]
seeds: [0, 1]
batch: 2
context: 32
evaluation: {n_windows: 4}
tune: {lr: "log(1e-3, 1e-1, 5)", at: [s, l], budget: 4k}
"""
BEST = {("gpt+", "s"): 0.012, ("gpt+", "l"): 0.003, ("angpt", "s"): 0.02, ("angpt", "l"): 0.02}


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    write_study(tmp_path, YAML)
    return tmp_path


def planned(say):
    code, out, _ = say("plan", "--json")
    assert code == 0
    return json.loads(out)


def end(study, run, loss, outcome="completed"):
    """Write what a run leaves behind that ended."""
    folder = study / "runs" / run["run_id"]
    folder.mkdir(parents=True)
    start = {"run_id": run["run_id"], "token": "t", "job": {}, "resume_step": 0, "resume_tokens": 0, "code": {},
             "environment": {"device": "cpu", "threads": 1}}  # fmt: skip
    values = {"loss_nats": loss, "bits_per_byte": loss / math.log(2)}
    with Journal.open(folder, start) as journal:
        journal.evaluation(run["n_steps"], run["n_tokens"], values, n_tokens=128, final=True, annealed=True)
        journal.end(outcome, run["n_steps"], run["n_tokens"], wall_s=2.0, train_wall_s=1.0)
    done = {"outcome": outcome, "attempt": 1, "step": run["n_steps"], "n_tokens": run["n_tokens"],
            "loss_nats": loss, "time": 1.0, "bits_per_byte": loss / math.log(2), "wall_s": 2.0, "train_wall_s": 1.0,
            "tokens_per_s": 100.0, "reason": ""}  # fmt: skip
    (folder / "DONE.json").write_text(json.dumps(done))


def end_sweep(study, plan, best=BEST):
    for run in plan["runs"]:
        off = math.log(run["lr_peak"] / best[run["label"], run["size"]])
        end(study, run, 2.0 * math.exp(0.01 * off**2))


def test_a_sweep_comes_first_and_then_the_grid_at_its_best_rates(study, say):
    sweep = planned(say)
    assert sweep["experiment"] == "tuned-tune"
    assert {(run["label"], run["size"], run["budget"], run["seed"]) for run in sweep["runs"]} == {
        (label, size, "4k", 2) for label in ("gpt+", "angpt") for size in "sl"
    }
    assert sorted({run["lr_peak"] for run in sweep["runs"]}) == [0.001, 0.00316, 0.01, 0.0316, 0.1]
    assert "goes on with 36 runs" in sweep["notes"][0]

    end_sweep(study, sweep)
    grid = planned(say)
    assert grid["experiment"] == "tuned" and len(grid["runs"]) == 36
    rates = {(run["label"], run["size"]): run["lr_peak"] for run in grid["runs"]}
    for place, rate in BEST.items():
        assert rates[place] == pytest.approx(rate, rel=2e-3)
    n = {run["size"]: run["n_params_non_embedding"] for run in grid["runs"] if run["label"] == "gpt+"}
    exponent = math.log(0.003 / 0.012) / math.log(n["l"] / n["s"])  # the law through both swept sizes
    assert rates["gpt+", "m"] == pytest.approx(0.012 * (n["m"] / n["s"]) ** exponent, rel=1e-2)
    assert {rates["pre-ln", size] for size in "sml"} == {0.003}
    assert not any("rule of thumb" in line or "borrow" in line for line in grid["warnings"])
    again = [run["run_id"] for run in planned(say)["runs"]]
    assert again == [run["run_id"] for run in grid["runs"]], "the same results give the same runs"


def test_the_report_says_how_the_sides_were_tuned_and_the_verbs_follow_the_stage(study, say):
    sweep = planned(say)
    code, out, err = say("status", "experiments.yaml")
    assert code == 0 and "0/20 runs" in out + err, "the sweep, as long as it is not over"
    end_sweep(study, sweep)
    grid = planned(say)
    assert "0/36 runs" in "".join(say("status", "experiments.yaml")[1:])
    for run in grid["runs"]:
        end(study, run, 2.0 * run["n_tokens"] ** -0.1 * (0.9 if run["label"] == "angpt" else 1.0))
    assert say("report")[0] == 0
    page = " ".join((study / "figures" / "tuned" / "index.html").read_text().split())
    share = sum(run["flops_total"] for run in sweep["runs"]) / sum(run["flops_total"] for run in grid["runs"])
    assert "The learning rates of GPT+ and anGPT were chosen alike, each by a sweep of 5 rates" in page
    assert f"(tuned-tune: 20 runs on seed 2, {share:.0%} of the compute of these runs)" in page
    assert "Pre-LN was trained at one learning rate per size, none swept here" in page


def test_a_best_rate_at_the_end_of_its_sweep_is_said_and_more_rates_train_only_what_is_new(study, say):
    end_sweep(study, planned(say), BEST | {("angpt", "l"): 0.4})
    grid = planned(say)
    (note,) = [line for line in grid["notes"] if "first or last" in line]
    assert "angpt l 4k, 0.1," in note
    middle = {run["lr_peak"] for run in grid["runs"] if (run["label"], run["size"]) == ("angpt", "m")}
    assert 0.02 < min(middle) == max(middle) < 0.1, "between its neighbours, though one lies at an end"
    text = (study / "experiments.yaml").read_text()
    (study / "experiments.yaml").write_text(
        text.replace('"log(1e-3, 1e-1, 5)"', "[1e-3, 3.16e-3, 1e-2, 3.16e-2, 0.1, 0.3]")
    )
    more = planned(say)
    assert more["experiment"] == "tuned-tune" and more["total"]["to_do"] == 4
    assert {run["lr_peak"] for run in more["runs"] if run["to_do"]} == {0.3}


def test_what_the_grid_leaves_out_is_not_swept(study, say):
    (study / "experiments.yaml").write_text(YAML + "exclude: [{method: angpt, size: l}]\nwhen: budget == '8k'\n")
    sweep = planned(say)
    assert {(run["label"], run["size"], run["budget"]) for run in sweep["runs"]} == {
        ("gpt+", "s", "4k"), ("gpt+", "l", "4k"), ("angpt", "s", "4k")}  # fmt: skip
    assert "goes on with 16 runs" in sweep["notes"][0]


@pytest.mark.parametrize(
    "change,said",
    [
        (('lr: "log(1e-3, 1e-1, 5)"', "lr: [0.01, 0.02]"), "tune.lr: a sweep needs 3 different rates or more"),
        (('lr: "log(1e-3, 1e-1, 5)"', 'lr: "log(0.1, 0.01, 5)"'), "log(LOWEST, HIGHEST, HOW MANY)"),
        (('lr: "log(1e-3, 1e-1, 5)"', "lr: 0.1"), "expected a list of rates or log(3e-4, 3e-2, 6)"),
        (("budget: 4k", "budget: 5k"), "unknown budget"),
        (("at: [s, l]", "at: [s, x]"), "unknown size"),
        (("budget: 4k", "seeds: [1]"), "tune.seeds: seed 1 is one of the grid's"),
        (("batch: 2", "batch: 2\nlr: 0.01"), "not beside `tune:`"),
        (("batch: 2", "batch: 2\ngrid: [{lr: [0.01, 0.02]}]"), "sweep by `tune:` or by an axis, not by both"),
        (("methods: [gpt+, angpt, {", "methods: [{"), "there is nothing to sweep"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_one_line(study, say, change, said):
    text = YAML.replace(*change).replace("compare: [angpt over gpt+]\n", "")
    (study / "experiments.yaml").write_text(text)
    code, _, err = say("plan")
    assert code == 1 and err.count("\n") == 1
    assert said in err and "experiments.yaml:" in err


def test_a_method_that_diverged_at_every_rate_of_a_size_is_named(study, say):
    sweep = planned(say)
    for run in sweep["runs"]:
        end(study, run, 2.0, "diverged" if (run["label"], run["size"]) == ("angpt", "l") else "completed")
    code, _, err = say("plan")
    assert code == 1 and "tuned-tune: fewer than 3 rates of angpt at l have a loss" in err


def test_a_sweep_says_what_it_tried_where_and_at_which_cost():
    """A parabola of log loss in log rate about .02 at one size and .01 at a larger one."""
    rows = [
        ("a", size, n, 1e6, "1M", seed, rate, 3 * math.exp(0.05 * math.log(rate / best) ** 2), 6 * n * 1e6)
        for size, n, best in (("s", 1e4, 0.02), ("l", 1e6, 0.01))
        for rate in (0.004, 0.008, 0.016, 0.032)
        for seed in (0, 3)
    ]
    names = ["label", "size", "n_params", "n_tokens", "budget", "seed", "lr_peak", "loss_nats", "flops"]
    found = read_sweep(pd.DataFrame(rows, columns=names), "swept")
    assert (found.rates_tried, found.seeds) == ((0.004, 0.008, 0.016, 0.032), (0, 3))
    assert found.places == {("a", "s"), ("a", "l")}
    assert (found.n_runs, found.flops) == (16, 8 * 6e6 * (1e4 + 1e6))
    assert found.rate("a", "s", 1e4) == pytest.approx(0.02, rel=0.01)
    assert found.rate("a", "m", 1e5) == pytest.approx(0.02 / math.sqrt(2), rel=0.01)  # half way in log N


def test_a_demo_whose_sweep_does_not_end_reports_no_sweep_as_if_it_were_the_grid(study, say, monkeypatch):
    monkeypatch.setattr(demo, "train", lambda plan, of: None)
    code, out, err = say("demo", "experiments.yaml")
    assert code == 3 and "the sweep is not over" in err
    assert not (study / "figures").exists()
