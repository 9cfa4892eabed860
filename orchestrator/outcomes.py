"""What the disk says about a run -> the state that it is in. Pure; what the scheduler says is asked elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Any

from db.results import Evidence
from db.states import StateChange

ATTEMPTED = frozenset({"planned", "claimed", "queued", "running", "interrupted", "failed", "unknown"})
FAILURES_ALLOWED = 1


def next_state(seen: Evidence) -> StateChange | None:
    """Return the change of state that newly read records mean, or None.

    DONE.json has the last word; then the newest attempt's end record; a journal that grows means running. A run that a
    person cancelled or held stays so until it has a result.
    """
    if seen.done.get("outcome") in ("completed", "diverged"):
        evidence = {"file": "DONE.json", "attempt": seen.done.get("attempt")}
        return StateChange(seen.run_id, str(seen.done["outcome"]), str(seen.done.get("reason") or ""), evidence)
    if seen.state not in ATTEMPTED or not seen.attempts:
        return None
    newest = seen.attempts[-1]
    evidence = {"attempt": newest["attempt"], "host": newest["host"], "pid": newest["pid"], "job_id": newest["job_id"]}
    state, reason = state_of(newest, seen.attempts)
    return StateChange(seen.run_id, state, reason, {**evidence, "outcome": newest["outcome"]}) if state else None


def state_of(newest: Mapping[str, Any], attempts: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the state that the newest attempt leaves its run in, and why; nothing where it does not say."""
    outcome = newest["outcome"]
    if outcome is None:
        return "running", f"attempt {newest['attempt']} on {newest['host'] or 'an unknown host'}"
    if outcome in ("stopped", "preempted"):
        return "interrupted", newest["reason"] or outcome
    if outcome != "failed":  # completed and diverged wait for DONE.json; fenced leaves the word to the other attempt
        return "", ""
    why = newest["reason"] or last_line(newest["error"]) or "no reason was written"
    if n_failures(attempts) > FAILURES_ALLOWED:
        return "failed", why
    return "interrupted", f"failed and will be tried again: {why}"


def last_line(error: str | None) -> str:
    """Return the line of a traceback that names the error."""
    return (error or "").strip().splitlines()[-1] if (error or "").strip() else ""


def n_failures(attempts: Sequence[Mapping[str, Any]]) -> int:
    """Count the newest attempts in a row that ended by an error."""
    failures = 0
    for attempt in reversed(attempts):
        if attempt["outcome"] != "failed":
            break
        failures += 1
    return failures
