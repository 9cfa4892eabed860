"""What newly read records say about a run -> the state that it is in; what became of its job is asked elsewhere."""

from collections.abc import Callable, Mapping
from typing import Any

from scalewright.db.results import Evidence
from scalewright.db.run_states import MAYBE_IN_A_JOB
from scalewright.db.states import StateChange
from scalewright.orchestrator.runs.journal import LASTING
from scalewright.orchestrator.runs.run_files import RunFacts, last_line

ATTEMPTED = MAYBE_IN_A_JOB | {"planned", "interrupted", "failed"}


def next_state(seen: Evidence, read_run: Callable[[str], RunFacts]) -> StateChange | None:
    """Return the change of state that newly read records mean, or None; `read_run` looks into a run's directory.

    DONE.json has the last word; then the newest attempt's end record; a journal that grows means running. A run that a
    person cancelled or held stays so until it has a result. A run that was given to a job stays so when an attempt
    ends: the job may go on with it, and whoever made it free here could start it twice.
    """
    if seen.done.get("outcome") in LASTING:
        evidence = {"file": "DONE.json", "attempt": seen.done.get("attempt")}
        return StateChange(seen.run_id, str(seen.done["outcome"]), str(seen.done.get("reason") or ""), evidence)
    if seen.state not in ATTEMPTED or not seen.attempts:
        return None
    newest = seen.attempts[-1]
    if newest["outcome"] is not None and seen.submission_id is not None and seen.state in MAYBE_IN_A_JOB:
        return None
    evidence = {"attempt": newest["attempt"], "host": newest["host"], "pid": newest["pid"], "job_id": newest["job_id"]}
    state, reason = state_of(newest, lambda: read_run(seen.run_id))
    return StateChange(seen.run_id, state, reason, {**evidence, "outcome": newest["outcome"]}) if state else None


def state_of(newest: Mapping[str, Any], read: Callable[[], RunFacts]) -> tuple[str, str]:
    """Return the state that the newest attempt leaves its run in, and why; nothing where it does not say."""
    outcome = newest["outcome"]
    if outcome is None:
        return "running", f"attempt {newest['attempt']} on {newest['host'] or 'an unknown host'}"
    if outcome in {*LASTING, "fenced"}:  # DONE.json, or the other attempt, says more
        return "", ""
    if why := read().why_failed():
        return "failed", why
    if outcome == "failed":
        why = newest["reason"] or last_line(newest["error"])
        return "interrupted", f"failed and will be tried again: {why}"
    return "interrupted", newest["reason"] or outcome
