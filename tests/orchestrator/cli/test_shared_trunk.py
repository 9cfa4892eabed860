"""Budgets of one method, size and seed that share a trunk: from the key in the YAML to equal losses and the bill."""

import json

import pytest
import torch

from scalewright.orchestrator.cli import run
from scalewright.orchestrator.jobs.packing import Work, balance, group, in_order
from scalewright.orchestrator.runs.trunk import trunk_of
from scalewright.orchestrator.train.divergence import Monitor

GRID = """
experiment: t
sizes: {s: {width: 16, depth: 2, heads: 2}}
budgets: [%s]
methods: [%s]
lr: 0.01
context: 64
batch: 4
schedule: {name: %s, warmup: %s%s}
%s
"""
WSD = ("wsd", "10 steps", ", decay: 25%")
SHARED = "shared_trunk: true"


def write(folder, budgets="20k, 40k, 60k", *, methods="angpt", schedule=WSD, key=SHARED):
    folder.mkdir(exist_ok=True)
    (folder / "e.yaml").write_text(GRID % (budgets, methods, *schedule, key))


def submit(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run(["submit", "e.yaml", "--executor", "debug"]) == 0
    return trained(capsys)


def trained(capsys):
    capsys.readouterr()
    assert run(["runs", "t", "--json"]) == 0
    return {row["run_id"]: row for row in json.loads(capsys.readouterr().out)}


def first_steps(folder):
    """By run: the step at which its first attempt began."""
    starts = [json.loads(path.read_text().splitlines()[0]) for path in folder.glob("runs/*/journal.a1.jsonl")]
    return {start["run_id"]: start["resume_step"] for start in starts}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    write(folder, key="")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(["submit", "e.yaml", "--executor", "debug"]) == 0
    return folder


@pytest.fixture
def alone_losses(alone, monkeypatch, capsys):
    monkeypatch.chdir(alone)
    return {run_id: row["loss_nats"] for run_id, row in trained(capsys).items()}


def test_runs_of_a_shared_trunk_end_as_they_would_alone_to_the_last_bit(tmp_path, monkeypatch, capsys, alone_losses):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(["plan", "e.yaml", "--json"]) == 0
    bill = json.loads(capsys.readouterr().out)
    # 79, 157 and 235 steps of 256 tokens; the decays begin after 59, 118 and 176
    rows = submit(tmp_path, monkeypatch, capsys)
    assert {run_id: row["loss_nats"] for run_id, row in rows.items()} == alone_losses
    begun = first_steps(tmp_path)
    assert sorted(begun.values()) == [0, 59, 118]
    assert {begun[run_id] for run_id, row in rows.items() if row["budget"] == "20k"} == {59}
    total = next(value for value in bill.values() if isinstance(value, dict) and "n_tokens" in value)
    assert total["n_tokens"] == (235 + (79 - 59) + (157 - 118)) * 256
    assert sorted(path.name for path in tmp_path.glob("trunks/*/*")) == [
        f"step-{step:09d}.pt" for step in (59, 118, 176)
    ]
    for row in rows.values():
        assert row["n_tokens"] in (79 * 256, 157 * 256, 235 * 256)
    assert run(["db", "rebuild"]) == 0
    assert {key: row["loss_nats"] for key, row in trained(capsys).items()} == alone_losses


def test_a_larger_budget_begins_where_the_earlier_ones_left_off(tmp_path, monkeypatch, capsys, alone_losses):
    write(tmp_path, "20k, 40k")
    submit(tmp_path, monkeypatch, capsys)
    write(tmp_path)
    rows = submit(tmp_path, monkeypatch, capsys)
    begun = first_steps(tmp_path)
    assert {begun[run_id] for run_id, row in rows.items() if row["budget"] == "60k"} == {118}
    assert {run_id: row["loss_nats"] for run_id, row in rows.items()} == alone_losses


@pytest.mark.parametrize("damage", ["gone", "torn", "of another trunk"])
def test_without_a_usable_state_a_run_trains_alone(tmp_path, monkeypatch, capsys, alone_losses, damage):
    write(tmp_path, "40k, 60k")
    submit(tmp_path, monkeypatch, capsys)
    assert len(list(tmp_path.glob("trunks/*/*.pt"))) == 2
    for path in tmp_path.glob("trunks/*/*.pt"):
        if damage == "gone":
            path.unlink()
        elif damage == "torn":
            path.write_bytes(path.read_bytes()[:999])
        else:
            torch.save(torch.load(path, weights_only=True) | {"run_id": "0" * 16}, path)
    write(tmp_path, "20k, 40k")
    rows = submit(tmp_path, monkeypatch, capsys)
    begun = first_steps(tmp_path)
    assert {begun[run_id] for run_id, row in rows.items() if row["budget"] == "20k"} == {0}
    assert all(alone_losses[run_id] == row["loss_nats"] for run_id, row in rows.items())


@pytest.mark.parametrize(
    ("schedule", "key", "said"),
    [
        (("cosine", "10 steps", ""), SHARED, "e.yaml:10: shared_trunk: no two runs share their first steps"),
        (("wsd", "5%", ", decay: 25%"), SHARED, "a warm-up in tokens, which is the same at each budget"),
        (WSD, f"{SHARED}\nresources: {{profiles: {{cpu: {{at_once: 2}}}}}}", "at_once: not with shared_trunk"),
    ],
)
def test_what_cannot_share_is_said_at_its_line(tmp_path, monkeypatch, capsys, schedule, key, said):
    write(tmp_path, schedule=schedule, key=key)
    monkeypatch.chdir(tmp_path)
    assert run(["plan", "e.yaml"]) == 1
    line = capsys.readouterr().err.strip()
    assert said in line and "\n" not in line


def test_a_job_trains_a_trunk_whole_and_the_longest_run_first():
    work = [
        Work("a1", "", 1.0, trunk="a"),
        Work("a3", "", 3.0, trunk="a"),
        Work("b", "", 2.0),
        Work("a2", "", 2.0, trunk="a"),
    ]
    assert [one.run_id for one in in_order(work)] == ["b", "a3", "a2", "a1"]
    assert [[one.run_id for one in pack] for pack in balance(work, 3)] == [["a3", "a2", "a1"], ["b"]]
    assert [[one.run_id for one in pack] for pack in group(work, 2)] == [["b"], ["a3", "a2", "a1"]]


def test_a_spike_that_would_have_ended_the_shorter_run_is_remembered():
    monitor = Monitor(rise_nats=1.0, patience_steps=100)
    for loss in [2.0] * 16 + [9.0] * 48 + [2.0] * 16:
        assert monitor.why_diverged(loss) is None
    assert (monitor.state()["high_steps"], monitor.state()["most_high_steps"]) == (0, 48)


def test_only_runs_whose_first_steps_are_the_same_have_one_trunk(tmp_path):
    from scalewright.orchestrator.plan.make import plan_file

    write(tmp_path, key="", methods="pre-ln, angpt")
    runs = plan_file(tmp_path / "e.yaml")[0].runs
    trunks = {run.run_id: trunk_of(run.spec) for run in runs}
    for label in ("pre-ln", "angpt"):
        assert len({trunks[run.run_id].trunk_id for run in runs if run.label == label}) == 1
    assert len({trunk.trunk_id for trunk in trunks.values()}) == 2
    assert sorted({trunk.n_tokens for trunk in trunks.values()}) == [59 * 256, 118 * 256, 176 * 256]
