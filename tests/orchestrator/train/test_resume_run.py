"""Stopped, killed or overtaken: a run goes on from its checkpoint as if nothing had happened, or keeps off."""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scalewright.orchestrator.runs import signals
from scalewright.orchestrator.runs.ownership import take_ownership
from scalewright.orchestrator.runs.run_files import read_run
from scalewright.orchestrator.train import checkpoint
from scalewright.orchestrator.train.run import train
from scalewright.orchestrator.train.system import System

N_STEPS = 40
SAVE_ALWAYS = {"checkpoint_every_s": 0.0, "evaluate_at": [640, 1280]}  # steps 10 and 20 are ends of chunks

MakeRun = Callable[..., Path]
ReadJournal = Callable[..., list[dict[str, Any]]]


def loss_of(run_dir: Path) -> float:
    return json.loads((run_dir / "DONE.json").read_text())["loss_nats"]


@pytest.fixture
def at_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[System], None]], None]:
    """Return a function that makes something happen right after a step."""
    step_once = System.step_once

    def arrange(step: int, happen: Callable[[System], None]) -> None:
        def stepped(system: System, batch: Any) -> None:
            step_once(system, batch)
            if system.progress.step == step:
                happen(system)

        monkeypatch.setattr(System, "step_once", stepped)

    return arrange


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch):
    """Install the job's signal handlers for the test, and take them back after it."""
    signals.install()
    yield
    signals.uninstall()


def kill(_: System) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_a_process_that_dies(run_dir: Path) -> int:
    process = multiprocessing.get_context("fork").Process(target=train, args=(run_dir,))
    process.start()
    process.join(timeout=120)
    assert process.exitcode is not None, "the process hangs"
    return process.exitcode


@pytest.mark.parametrize("method", ["gpt+", "angpt"])
def test_a_run_killed_and_resumed_has_the_same_loss_bit_for_bit(
    make_run: MakeRun, read_journal: ReadJournal, at_step, method: str
) -> None:
    whole = make_run("whole", model={"method": method})
    train(whole)
    killed = make_run("killed", model={"method": method}, settings=SAVE_ALWAYS)
    at_step(15, kill)
    assert in_a_process_that_dies(killed) == -signal.SIGKILL
    assert not (killed / "DONE.json").exists()
    at_step(-1, kill)
    assert train(killed) == "completed"
    assert read_journal(killed, "start", attempt=2)[0]["resume_step"] == 10
    assert loss_of(killed) == loss_of(whole)


def test_a_resumed_curve_has_no_hole_and_the_same_values(make_run: MakeRun, read_journal: ReadJournal, at_step) -> None:
    every = {"log_every_steps": 3}
    whole, killed = make_run("whole", settings=every), make_run("killed", settings=SAVE_ALWAYS | every)
    train(whole)
    at_step(15, kill)
    in_a_process_that_dies(killed)
    at_step(-1, kill)
    train(killed)
    resumed_at = read_journal(killed, "start", attempt=2)[0]["resume_step"]
    first = [r for r in read_journal(killed, "metrics", 1) if r["step"] <= resumed_at]
    curve = [(r["step"], r["values"]["loss_nats"]) for r in first + read_journal(killed, "metrics", 2)]
    assert curve == [(r["step"], r["values"]["loss_nats"]) for r in read_journal(whole, "metrics")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2, signal.SIGINT])
def test_a_signal_saves_at_the_next_step_and_the_run_goes_on_later(
    make_run: MakeRun, read_journal: ReadJournal, at_step, signalled, number: int
) -> None:
    whole, stopped = make_run("whole"), make_run("stopped")
    train(whole)
    at_step(7, lambda _: os.kill(os.getpid(), number))
    assert train(stopped) == "preempted"
    end = read_journal(stopped, "end")[0]
    assert (end["outcome"], end["step"]) == ("preempted", 7)
    assert [r["step"] for r in read_journal(stopped, "metrics")] == list(range(1, 8))
    assert checkpoint.load_latest(stopped, stopped.name)["step"] == 7
    signals.uninstall()
    at_step(-1, kill)
    assert train(stopped) == "completed"
    assert read_journal(stopped, "start", attempt=2)[0]["resume_step"] == 7
    assert loss_of(stopped) == loss_of(whole)


def test_a_signal_in_the_last_step_does_not_take_the_result_away(make_run: MakeRun, at_step, signalled) -> None:
    run_dir = make_run()
    at_step(N_STEPS, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert train(run_dir) == "completed"


def test_a_stop_file_stops_the_run_until_it_is_gone(make_run: MakeRun, read_journal: ReadJournal) -> None:
    run_dir = make_run()
    (run_dir / "stop").touch()
    assert train(run_dir) == "stopped"
    assert read_journal(run_dir, "end")[0]["outcome"] == "stopped"
    (run_dir / "stop").unlink()
    assert train(run_dir) == "completed"


def test_a_stop_file_that_comes_and_goes_between_two_steps_still_stops_the_run(
    make_run: MakeRun, read_journal: ReadJournal, at_step, monkeypatch
) -> None:
    from scalewright.orchestrator.train import run as running

    monkeypatch.setattr(running, "STOP_FILE_EVERY_S", 0.0)
    run_dir = make_run(settings={"log_every_steps": 1000})
    make = System.__init__

    def spied(system: System, model: Any, recipe: Any, progress: Any, asked: Callable[[], bool], **rest: Any) -> None:
        def ask() -> bool:
            answer = asked()
            (run_dir / "stop").unlink(missing_ok=True)
            return answer

        make(system, model, recipe, progress, ask, **rest)

    monkeypatch.setattr(System, "__init__", spied)
    at_step(7, lambda _: (run_dir / "stop").touch())
    assert train(run_dir) == "stopped"
    assert read_journal(run_dir, "checkpoint")[0]["step"] == 7
    at_step(-1, kill)
    assert train(run_dir) == "completed"


def test_an_attempt_that_lost_its_run_writes_no_checkpoint_and_no_outcome(
    make_run: MakeRun, read_journal: ReadJournal, at_step
) -> None:
    run_dir = make_run(settings=SAVE_ALWAYS)
    at_step(15, lambda _: take_ownership(run_dir, 2, "another"))
    assert train(run_dir) == "fenced"
    assert [path.name for path in checkpoint.checkpoints(run_dir)] == ["step-000000010.pt"]
    assert not (run_dir / "DONE.json").exists()
    assert read_journal(run_dir, "end")[0]["outcome"] == "fenced"
    assert json.loads((run_dir / "owner.json").read_text())["token"] == "another"


def test_an_attempt_that_lost_its_run_after_its_last_checkpoint_writes_no_outcome(
    make_run: MakeRun, monkeypatch
) -> None:
    run_dir = make_run()
    save = checkpoint.save

    def overtaken(*arguments: Any) -> Any:
        saved = save(*arguments)
        take_ownership(run_dir, 2, "another")
        return saved

    monkeypatch.setattr(checkpoint, "save", overtaken)
    assert train(run_dir) == "fenced"
    assert not (run_dir / "DONE.json").exists()


def test_a_run_killed_between_its_last_checkpoint_and_its_outcome_needs_no_more_training(
    make_run: MakeRun, read_journal: ReadJournal, monkeypatch
) -> None:
    run_dir = make_run()
    save = checkpoint.save

    def die(*arguments: Any) -> None:
        save(*arguments)
        kill(None)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", die)
        in_a_process_that_dies(run_dir)
    final = read_journal(run_dir, "evaluation")[0]["values"]["loss_nats"]
    assert not (run_dir / "DONE.json").exists()
    assert train(run_dir) == "completed"
    assert read_journal(run_dir, "metrics", attempt=2) == []
    assert loss_of(run_dir) == final


@pytest.mark.parametrize("damage", [lambda b: b[:1000], lambda b: b"garbage\n", lambda b: bytes(len(b)), lambda b: b""])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    make_run: MakeRun, read_journal, at_step, damage
) -> None:
    whole, hurt = make_run("whole"), make_run("hurt", settings=SAVE_ALWAYS)
    train(whole)
    at_step(25, kill)
    in_a_process_that_dies(hurt)
    newest, before = checkpoint.checkpoints(hurt)
    assert (newest.name, before.name) == ("step-000000020.pt", "step-000000010.pt")
    newest.write_bytes(damage(newest.read_bytes()))
    at_step(-1, kill)
    assert train(hurt) == "completed"
    assert read_journal(hurt, "start", attempt=2)[0]["resume_step"] == 10
    assert loss_of(hurt) == loss_of(whole)


def test_an_attempt_that_fails_before_it_begins_is_counted_and_rewinds_nothing(
    make_run: MakeRun, read_journal: ReadJournal, at_step, monkeypatch
) -> None:
    run_dir = make_run(settings=SAVE_ALWAYS)
    at_step(25, kill)
    in_a_process_that_dies(run_dir)

    def broken(*_: Any) -> None:
        raise ImportError("no such thing")

    monkeypatch.setattr(checkpoint, "load_latest", broken)
    for _ in range(2):
        with pytest.raises(ImportError, match="no such thing"):
            train(run_dir)
    assert read_run(run_dir).n_errors == 2
    assert read_journal(run_dir, "start", attempt=2)[0]["resume_step"] == read_journal(run_dir, "metrics")[-1]["step"]
    assert read_journal(run_dir, "end", attempt=3)[0]["reason"] == "ImportError: no such thing"


def test_two_checkpoints_are_kept_and_no_temporary_file(make_run: MakeRun, read_journal: ReadJournal) -> None:
    run_dir = make_run(settings={"checkpoint_every_s": 0.0, "evaluate_at": list(range(64, 2560, 64))})
    train(run_dir)
    assert len(read_journal(run_dir, "checkpoint")) == N_STEPS
    assert sorted(path.name for path in (run_dir / "ckpt").iterdir()) == ["step-000000039.pt", "step-000000040.pt"]


def test_a_full_disk_costs_the_checkpoint_and_not_the_result(
    make_run: MakeRun, read_journal: ReadJournal, monkeypatch, capsys
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_bytes", full)
    run_dir = make_run(settings=SAVE_ALWAYS)
    assert train(run_dir) == "completed"
    assert capsys.readouterr().err.count("No space left on device") == 1
    assert read_journal(run_dir, "checkpoint") == []


def test_wall_times_add_up_over_attempts(make_run: MakeRun, read_journal: ReadJournal, at_step, signalled) -> None:
    run_dir = make_run()
    at_step(20, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    train(run_dir)
    first = read_journal(run_dir, "end")[0]
    signals.uninstall()
    at_step(-1, kill)
    train(run_dir)
    second = read_journal(run_dir, "end", attempt=2)[0]
    record = json.loads((run_dir / "DONE.json").read_text())
    assert record["train_wall_s"] == second["train_wall_s"] > first["train_wall_s"] > 0
    assert record["wall_s"] > record["train_wall_s"]
    assert record["tokens_per_s"] == record["n_tokens"] / record["train_wall_s"]
