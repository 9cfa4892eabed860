"""The states of a run, and the sets of them that others ask for: the one owner of these names. No import."""

STATES = (
    "planned",
    "claimed",
    "queued",
    "running",
    "completed",
    "diverged",
    "interrupted",
    "failed",
    "cancelled",
    "held",
    "unknown",
)
ENDED = frozenset({"completed", "diverged"})  # with a result, never started again
CLAIMABLE = frozenset({"planned", "interrupted"})
IN_A_JOB = frozenset({"claimed", "queued", "running"})
MAYBE_IN_A_JOB = IN_A_JOB | {"unknown"}  # its job may be gone, which nobody could confirm
