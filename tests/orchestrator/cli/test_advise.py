"""`advise` as a person types it: what it prefers, what it keeps, what it starts, and what later verbs say of it."""

import json

import numpy as np
import pytest
from planted_study import YAML, write_results

from scalewright.db.engine import open_database
from scalewright.db.store import claim_runs
from scalewright.orchestrator.cli.actions import order_of
from scalewright.orchestrator.jobs.submit import announce
from scalewright.orchestrator.plan.make import plan_file, record
from scalewright.orchestrator.study import Study

ASKED = ("advise", "--question", "compare: angpt over gpt+")


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Plan four seeds; return a function that lets the runs end which it is told to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text("\n\n".join(f"document {n}: " + "no play. " * 90 for n in range(40)))
    file = tmp_path / "experiments.yaml"
    file.write_text(YAML.replace("batch: 2", "seeds: 4\nbatch: 2"))
    plan, found = plan_file(file)
    record(plan, found)

    def end(which):
        rng = np.random.default_rng(0)
        for run in plan.runs:
            factor = np.exp(0.003 * rng.normal())
            if which(run):
                write_results(found.run_dir(run.run_id), run, factor)
        return plan

    return end


def test_the_method_with_fewer_runs_at_a_place_is_bought_first(say, study):
    """By hand, at one place and cost: a second run of gpt+ takes 1/2 of a run's variance, a fourth of angpt 1/12."""
    place = ("middle", "0.2M")
    study(lambda run: (run.size, run.budget) != place or (run.spec.training["seed"] < 3) == (run.label == "angpt"))
    code, out, err = say(*ASKED, "--batch", "3", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert {(one["size"], one["budget"]) for one in told["chosen"]} == {place}
    assert told["chosen"][0]["label"] == "gpt+"
    halves = [told["half"], *(one["half"] for one in told["chosen"])]
    assert all(before > after > 0 for before, after in zip(halves, halves[1:], strict=False))
    assert told["total_cost"] == pytest.approx(sum(one["cost"] for one in told["chosen"]))


def test_a_choice_is_kept_and_done_again_from_its_file(say, study, tmp_path):
    study(lambda run: run.size == "small")
    code, printed, _ = say(*ASKED, "--budget", "1e12")
    assert code == 0 and "Runs to buy next" in printed
    [file] = (tmp_path / "advice").glob("*.json")
    assert say("advise", "--replay", file)[:2] == (0, printed)
    kept = json.loads(file.read_text())
    assert (kept["budget"], kept["n_batch"], kept["to_within"], kept["submitted"]) == (1e12, 4, None, False)
    kept["chosen"] = kept["chosen"][1:]
    file.write_text(json.dumps(kept))
    code, _, err = say("advise", "--replay", file)
    assert code == 1 and "other runs are chosen now" in err


def test_submit_starts_exactly_the_runs_that_were_chosen_and_compare_says_so(say, study, tmp_path):
    study(lambda run: run.spec.training["seed"] == 0)
    code, out, err = say(*ASKED, "--batch", "4", "--submit", "--executor", "debug", "--payload", "debug", "--json")
    assert code == 0, err
    chosen = {one["run_id"] for one in json.loads(out)["chosen"]}
    ended = json.loads(say("runs", "experiments.yaml", "--where", "state == 'completed' and seed > 0", "--json")[1])
    assert {run["run_id"] for run in ended} == chosen and len(chosen) == 4
    [file] = (tmp_path / "advice").glob("*.json")
    assert json.loads(file.read_text())["submitted"] is True
    said = "`advise` chose 4 of 22 runs that ended, in 1 choice for: compare: angpt over gpt+"
    assert said in say("compare", "angpt", "gpt+")[1]
    say("report", "experiments.yaml")
    assert "22 runs that ended, in" in (tmp_path / "figures" / "planted" / "index.html").read_text()


def test_runs_on_their_way_count_as_bought(say, study, tmp_path):
    plan, here = study(lambda run: run.spec.training["seed"] == 0), Study.at(tmp_path)
    told = json.loads(say(*ASKED, "--batch", "4", "--json")[1])
    first = [one["run_id"] for one in told["chosen"]]
    again = json.loads(say(*ASKED, "--batch", "4", "--json")[1])
    assert [one["run_id"] for one in again["chosen"]] == first  # nothing was submitted
    announce(here, "being-made", order_of(plan, executor="local", max_parallel=None, payload="debug"))
    database = open_database(here.database)
    claim_runs(database, first, "being-made", executor="local", snapshot=None)
    database.close()
    code, out, _ = say(*ASKED, "--batch", "4")
    assert code == 0 and "4 on their way counted as bought" in out
    next_ones = json.loads(say(*ASKED, "--batch", "4", "--json")[1])["chosen"]
    assert next_ones and not {one["run_id"] for one in next_ones} & set(first)
    assert next_ones[0]["half"] < told["chosen"][-1]["half"]  # the four on their way narrow it before


def test_nothing_is_bought_where_the_interval_is_narrow_enough(say, study):
    study(lambda run: run.spec.training["seed"] < 3)
    code, out, _ = say(*ASKED, "--to-within", "0.9")
    assert code == 0 and "as narrow as asked" in out
    assert "no run fits the budget" in say(*ASKED, "--budget", "10")[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), 'needs --question: "compare: angpt over gpt+"'),
        (("--question", "is it good"), "expected"),
        (("--question", "angpt over gptt"), "did you mean gpt+"),
        (("--question", "angpt over angpt"), "cannot be compared with itself"),
        (("--question", "exponent alpha"), "add `of LABEL`, one of: angpt, gpt+"),
        (("--question", "exponent gamma of gpt+"), "valid: alpha, beta"),
        (("--question", "loss of gpt+ at N=big, D=1e9"), "not a number"),
        (("--question", "angpt over gpt+", "--budget", "one apple"), "expected FLOP (1e18) or GPU hours (20h)"),
        (("planted", "--question", "angpt over gpt+", "--submit"), "--submit needs the YAML file"),
        (("--replay", "nowhere.json"), "nowhere.json: no such file"),
    ],
)
def test_a_mistake_is_one_line(say, study, options, words):
    study(lambda run: run.size == "small")
    code, out, err = say("advise", *options)
    assert (code, out) == (1, "")
    assert words in err and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("question", ["loss of gpt+ at N=1e6, D=1e8", "exponent beta of gpt+"])
def test_laws_can_be_asked_too(say, study, question):
    study(lambda run: run.size == "small" and run.spec.training["seed"] < 2)
    told = json.loads(say("advise", "--question", question, "--budget", "20h", "--json")[1])
    assert len(told["chosen"]) == 4 and {one["label"] for one in told["chosen"]} == {"gpt+"}
    assert told["chosen"][-1]["half"] < told["half"] and told["unit"] == "hours"


FOLLOW = ("--batch", "4", "--follow", "--executor", "debug", "--payload", "debug")


def test_follow_goes_on_until_the_budget_is_spent_and_the_same_command_counts_it(say, study, tmp_path):
    study(lambda run: run.spec.training["seed"] == 0)
    first = json.loads(say(*ASKED, "--batch", "4", "--json")[1])
    budget = f"{1.5 * first['total_cost']!r}"
    code, out, err = say(*ASKED, "--budget", budget, *FOLLOW)
    assert code == 0 and "budget is spent" in err
    made = [json.loads(path.read_text()) for path in sorted((tmp_path / "advice").glob("*.json"))]
    bought = [one["run_id"] for each in made if each["submitted"] for one in each["chosen"]]
    costs = {row["run_id"]: row["cost"] for each in reversed(made) for row in each["runs"] if row["cost"]}
    assert len(set(bought)) == len(bought) >= 4
    assert sum(costs[run] for run in bought) <= float(budget)
    ended = json.loads(say("runs", "experiments.yaml", "--where", "state == 'completed' and seed > 0", "--json")[1])
    assert {run["run_id"] for run in ended} == set(bought)
    code, _, err = say(*ASKED, "--budget", budget, *FOLLOW)
    assert code == 0 and "budget is spent" in err
    again = json.loads(say("runs", "experiments.yaml", "--where", "state == 'completed' and seed > 0", "--json")[1])
    assert len(again) == len(bought)


def test_follow_says_that_the_interval_is_narrow_and_asks_for_an_end(say, study):
    study(lambda run: run.spec.training["seed"] < 3)
    code, _, err = say(*ASKED, "--to-within", "0.9", *FOLLOW)
    assert code == 0 and "the interval is as narrow as asked, after 0 choices" in err
    assert "--follow needs an end: --to-within or --budget" in say(*ASKED, *FOLLOW)[2]
