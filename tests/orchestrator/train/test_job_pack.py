"""A pack: several runs in one process, each with its own outcome, whatever happens to the others."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from scalewright.orchestrator.code import code_root
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.jobs.job import run_pack
from scalewright.orchestrator.jobs.records import Pack
from scalewright.orchestrator.runs import signals
from scalewright.orchestrator.train.system import System

ROOT = code_root()


@pytest.fixture(autouse=True)
def give_signals_back():
    yield
    signals.uninstall()


@pytest.fixture
def make_pack(tmp_path: Path) -> Callable[..., Path]:
    def make(*runs: Path, root: Path = ROOT) -> Path:
        pack = Pack("s1", "p0001", [str(run) for run in runs], str(root), "snapshot-hash", commit="abc", dirty=True)
        pack.write(tmp_path / "jobs" / "p0001")
        return tmp_path / "jobs" / "p0001"

    return make


def test_every_run_of_a_pack_gets_its_outcome(make_pack, make_run, read_journal) -> None:
    runs = [make_run(seed=seed) for seed in (0, 1)]
    assert run_pack(make_pack(*runs)) == {run.name: "completed" for run in runs}
    code = read_journal(runs[0], "start")[0]["code"]
    assert code == {"commit": "abc", "dirty": True, "snapshot": "snapshot-hash"}


def test_the_error_of_one_run_leaves_the_others_alone_and_is_reported(make_pack, make_run) -> None:
    broken, fine = make_run(settings={"data_dir": "/nowhere"}), make_run(seed=1)
    heard = []
    outcomes = run_pack(make_pack(broken, fine), after_run=lambda *report: heard.append(report))
    assert outcomes == {broken.name: "failed", fine.name: "completed"}
    assert [(run, outcome) for run, outcome, _ in heard] == [(broken, "failed"), (fine, "completed")]
    assert heard[0][2].strip().endswith("(make token shards with: scalewright data prepare)")
    assert heard[1][2] is None


def test_a_system_exit_inside_a_run_never_looks_like_success(make_pack, make_run, read_journal, monkeypatch) -> None:
    def leave(*_: object) -> None:
        raise SystemExit(0)

    monkeypatch.setattr(System, "step_once", leave)
    run = make_run()
    assert run_pack(make_pack(run)) == {run.name: "failed"}
    assert read_journal(run, "end")[0]["outcome"] == "failed"


def test_a_run_that_is_to_be_skipped_is_not_started(make_pack, make_run) -> None:
    first, second = make_run(), make_run(seed=1)
    outcomes = run_pack(make_pack(first, second), before_run=lambda run: "not now" if run == first else None)
    assert outcomes == {first.name: "skipped", second.name: "completed"}
    assert not list(first.glob("journal.*"))


def test_a_preempted_run_is_the_last_of_its_pack(make_pack, make_run, monkeypatch) -> None:
    first, second = make_run(), make_run(seed=1)
    step_once = System.step_once

    def stepped(system: System, batch: object) -> None:
        step_once(system, batch)
        if system.progress.step == 5:
            os.kill(os.getpid(), signal.SIGUSR2)

    monkeypatch.setattr(System, "step_once", stepped)
    assert run_pack(make_pack(first, second)) == {first.name: "preempted"}


def test_a_signal_in_the_last_step_of_a_run_keeps_the_next_from_starting(make_pack, make_run, monkeypatch) -> None:
    first, second = make_run(), make_run(seed=1)
    step_once = System.step_once

    def stepped(system: System, batch: object) -> None:
        step_once(system, batch)
        if system.progress.step == system.progress.n_steps:
            os.kill(os.getpid(), signal.SIGUSR2)

    monkeypatch.setattr(System, "step_once", stepped)
    assert run_pack(make_pack(first, second)) == {first.name: "completed"}
    assert not list(second.glob("journal.*"))


def test_code_from_elsewhere_than_the_snapshot_is_refused(make_pack, make_run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"models was imported from .*, this job was submitted with the code in"):
        run_pack(make_pack(make_run(), root=tmp_path))
