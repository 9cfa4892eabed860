"""A payload that trains nothing: it writes what a run writes, and misbehaves on request. For trying out orchestration.

A run directory's `debug.json` may hold any field of Behaviour; the loss follows from the steps alone, so a resumed
run's curve can be compared bit for bit with that of an uninterrupted one.
"""

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewright.orchestrator.files import usable, write_json
from scalewright.orchestrator.jobs.records import Pack
from scalewright.orchestrator.runs import signals
from scalewright.orchestrator.runs.job_environment import job_place
from scalewright.orchestrator.runs.journal import Journal
from scalewright.orchestrator.runs.ownership import Ownership, new_token, take_ownership
from scalewright.orchestrator.runs.processes import Process
from scalewright.orchestrator.runs.records import Done
from scalewright.orchestrator.talk import say

HANG_S = 3600.0
CHECKPOINTS_KEPT = 2


@dataclass(frozen=True)
class Behaviour:
    """How a debug run behaves; `..._at` is a step at which something goes wrong."""

    steps: int = 4
    step_s: float = 0.025
    tokens_per_step: int = 1024
    checkpoint_every: int = 1
    error: str = "planned error"
    error_at: int | None = None
    errors_until_attempt: int = 1_000_000
    hang_at: int | None = None
    hangs_until_attempt: int = 1_000_000
    exit_at: int | None = None
    exit_code: int = 7
    deaf: bool = False
    memory_mb_at: tuple[int, int] | None = None


@dataclass
class State:
    """What a checkpoint holds: the step and the chain of hashes that stands for the weights."""

    step: int = 0
    chain: str = "0"

    def advance(self) -> None:
        """Make one step: the chain depends on every step before it."""
        self.step += 1
        self.chain = hashlib.sha256(f"{self.chain}:{self.step}".encode()).hexdigest()

    @property
    def loss_nats(self) -> float:
        """A falling number that the chain determines: a step lost or made twice shows in it."""
        return int(self.chain[:8], 16) / 2**32 + 4.0 / (1 + self.step)


def run_pack(
    job_dir: Path,
    *,
    before_run: Callable[[Path], str | None],
    after_run: Callable[[Path, str, str | None], None],
) -> dict[str, str]:
    """Run a pack's runs one after another; return each run's outcome. A run's error does not stop the pack."""
    outcomes: dict[str, str] = {}
    for run_dir in map(Path, Pack.read(job_dir).runs):
        if before_run(run_dir) is not None:
            outcomes[run_dir.name] = "skipped"
            continue
        outcome, error = _run_one(run_dir)
        after_run(run_dir, outcome, error)
        outcomes[run_dir.name] = outcome
        if outcome == "preempted":
            break
    return outcomes


def _run_one(run_dir: Path) -> tuple[str, str | None]:
    behaviour = usable(run_dir / "debug.json", Behaviour) or Behaviour()
    state = latest_state(run_dir)
    token = new_token()
    journal = Journal.open(run_dir, _start_record(run_dir, token, state, behaviour))
    owner = take_ownership(run_dir, journal.attempt, token)
    began = time.time()
    try:
        outcome, error = _steps(run_dir, journal, owner, state, behaviour)
    except MemoryError:
        outcome, error = "failed", "MemoryError: out of memory"
    except RuntimeError as trouble:
        outcome, error = "failed", f"RuntimeError: {trouble}"
    tokens, wall_s = state.step * behaviour.tokens_per_step, time.time() - began
    journal.end(outcome, state.step, tokens, reason=error or outcome, error=error, wall_s=wall_s, train_wall_s=wall_s)
    journal.close()
    if outcome == "completed":
        owner.finish(_done_record(run_dir.name, journal.attempt, state, tokens, wall_s))
    return outcome, error


def _start_record(run_dir: Path, token: str, state: State, behaviour: Behaviour) -> dict[str, Any]:
    process = Process.this()
    return {
        "run_id": run_dir.name,
        "token": token,
        "host": process.host,
        "pid": process.pid,
        "job": job_place(),
        "resume_step": state.step,
        "resume_tokens": state.step * behaviour.tokens_per_step,
        "code": {"commit": None, "dirty": False, "snapshot": None},
        "environment": {"device": "none", "threads": 1},
    }


def _steps(
    run_dir: Path, journal: Journal, owner: Ownership, state: State, behaviour: Behaviour
) -> tuple[str, str | None]:
    while state.step < behaviour.steps:
        _misbehave(journal.attempt, state.step, behaviour)
        time.sleep(behaviour.step_s)
        state.advance()
        tokens = state.step * behaviour.tokens_per_step
        journal.metrics(state.step, tokens, {"loss_nats": state.loss_nats, "tokens_per_s": _tokens_per_s(behaviour)})
        asked = None if behaviour.deaf else signals.requested() or ("stopped" if (run_dir / "stop").exists() else None)
        if asked or state.step % behaviour.checkpoint_every == 0:
            if not owner.holds():
                return "fenced", None
            save(run_dir, journal, state, tokens)
        if asked and state.step < behaviour.steps:
            return asked, None
    if not owner.holds():
        return "fenced", None
    values = {"loss_nats": state.loss_nats, "bits_per_byte": state.loss_nats}
    journal.evaluation(state.step, state.step * behaviour.tokens_per_step, values, n_tokens=1024, final=True)
    return "completed", None


def _tokens_per_s(behaviour: Behaviour) -> float:
    return behaviour.tokens_per_step / max(behaviour.step_s, 1e-6)


def _misbehave(attempt: int, step: int, behaviour: Behaviour) -> None:
    if step == behaviour.error_at and attempt <= behaviour.errors_until_attempt:
        raise RuntimeError(behaviour.error)
    if step == behaviour.hang_at and attempt <= behaviour.hangs_until_attempt:
        time.sleep(HANG_S)
    if step == behaviour.exit_at:
        os._exit(behaviour.exit_code)
    if behaviour.memory_mb_at and step == behaviour.memory_mb_at[0]:
        held = bytearray(behaviour.memory_mb_at[1] * 2**20)
        held[::4096] = b"x" * len(held[::4096])
        time.sleep(HANG_S)


def save(run_dir: Path, journal: Journal, state: State, tokens: int) -> None:
    """Write a checkpoint and drop the oldest; a full disk costs the checkpoint, not the run."""
    path = run_dir / "ckpt" / f"step-{state.step:09d}.json"
    try:
        write_json(path, state, durable=False)
    except OSError as trouble:  # as training does: a full disk costs the checkpoint, not the run
        say(f"scalewright: {run_dir}: no checkpoint written ({trouble.strerror})")
        return
    journal.checkpoint(state.step, tokens, str(path.relative_to(run_dir)), path.stat().st_size)
    for old in sorted(path.parent.glob("step-*.json"))[:-CHECKPOINTS_KEPT]:
        old.unlink(missing_ok=True)


def latest_state(run_dir: Path) -> State:
    """Read the newest whole checkpoint; a damaged one is passed over for the one before it."""
    saved = sorted((run_dir / "ckpt").glob("step-*.json"), reverse=True)
    found = (usable(path, State) for path in saved)
    return next((state for state in found if state is not None), State())


def _done_record(run_id: str, attempt: int, state: State, tokens: int, wall_s: float) -> Done:
    return Done(
        outcome="completed",
        attempt=attempt,
        step=state.step,
        n_tokens=tokens,
        loss_nats=state.loss_nats,
        bits_per_byte=state.loss_nats,
        wall_s=wall_s,
        train_wall_s=wall_s,
        tokens_per_s=tokens / max(wall_s, 1e-9),
        time=time.time(),
        reason="completed",
        run_id=run_id,
    )
