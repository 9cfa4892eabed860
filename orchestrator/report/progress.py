"""How far an experiment is: numbers from the progress frame, and a live view of them. Knows frames, not jobs."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from scalewright.db.run_states import ENDED, IN_A_JOB
from scalewright.fitting.words import counted
from scalewright.orchestrator.report.format import duration, short_count

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]
TICK_S = 1.0
QUIET_TICK_S = 2.0
REASON_CHARACTERS = 60
OVER = ENDED | {"failed", "cancelled", "held"}
TELLING = ("failed", "unknown", "held", "running", "interrupted", "queued")  # in the order of urgency
COMMONPLACE = ("attempt ", "job ", "waits for its turn")
ORDER = ("running", "queued", "claimed", "planned", "interrupted", "unknown", "held", "failed", "cancelled")
SEEN_LATELY_S = 60.0
SILENT_S = 300.0


@dataclass(frozen=True)
class Progress:
    """An experiment at one moment. left_s: seconds until everything that is submitted is over, None while unknown."""

    n_runs: int
    states: dict[str, int]
    n_tokens: int
    n_tokens_planned: int
    tokens_per_s: float
    left_s: float | None
    groups: list[dict[str, Any]] = field(default_factory=list)

    @property
    def n_done(self) -> int:
        """Runs with a final loss or a divergence: both are results."""
        return self.states.get("completed", 0) + self.states.get("diverged", 0)

    @property
    def n_open(self) -> int:
        """Runs that are in somebody's hands and not over."""
        return sum(self.states.get(state, 0) for state in IN_A_JOB)

    @property
    def share(self) -> float:
        """Part of the planned tokens that is trained."""
        return self.n_tokens / self.n_tokens_planned if self.n_tokens_planned else 0.0


def measure(frame: "pd.DataFrame", now: float | None = None) -> Progress:
    """Sum the progress frame (scalewright.db.frames.progress) up."""
    rows: list[Any] = frame.to_dict("records")
    return measure_rows(rows, now or time.time())


def measure_rows(rows: Sequence[Row], now: float) -> Progress:
    """The same from plain rows: a watch must not take the processor from the jobs that it watches."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["label"], row["size"]), []).append(row)
    running = [row for row in rows if row["state"] == "running"]
    alive = [row for row in running if number(row["last_seen_at"]) > now - SEEN_LATELY_S]
    return Progress(
        n_runs=len(rows),
        states=dict(Counter(str(row["state"]) for row in rows)),
        n_tokens=sum(int(row["n_tokens"]) for row in rows),
        n_tokens_planned=sum(
            int(row["n_tokens" if row["state"] == "diverged" else "n_tokens_planned"]) for row in rows
        ),
        tokens_per_s=sum(number(row["tokens_per_s"]) for row in alive),
        left_s=time_left(rows, len(running)),
        groups=[group_row(key, members, now) for key, members in groups.items()],
    )


def number(value: Any) -> float:
    """Read a cell that may be missing as a number; missing is 0."""
    return 0.0 if value is None or value != value else float(value)


def time_left(rows: Sequence[Row], n_at_once: int) -> float | None:
    """Estimate the seconds left: what is owed, shared among the runs that train now, but no less than the longest.

    Runs that have not begun are planned; the plan is stretched by how much slower than planned the others go.
    """
    waiting = [number(row["left_s"]) for row in rows if row["state"] in ("queued", "claimed")]
    training = [number(row["left_s"]) for row in rows if row["state"] == "running"]
    if not waiting and not training:
        return 0.0
    stretch = slowdown(rows)
    owed = training + [seconds * stretch for seconds in waiting]
    return max(sum(owed) / n_at_once, max(owed)) if n_at_once else None


def slowdown(rows: Sequence[Row]) -> float:
    """Return how many times longer than planned the running runs take a token, 1 while nothing is known."""
    ratios = [
        row["n_tokens_planned"] / row["wall_s_planned"] / row["tokens_per_s"]
        for row in rows
        if row["state"] == "running" and number(row["tokens_per_s"]) and number(row["wall_s_planned"])
    ]
    return median(ratios) if ratios else 1.0


def group_row(key: tuple[str, str], rows: Sequence[Row], now: float) -> dict[str, Any]:
    """Sum the runs of one method at one size up: a row of the table."""
    counts = Counter(str(row["state"]) for row in rows)
    n_done = counts["completed"] + counts["diverged"]
    rest = [f"{counts[state]} {state}" for state in ("diverged", *ORDER) if counts[state]]
    tokens, planned = (sum(int(row[name]) for row in rows) for name in ("n_tokens", "n_tokens_planned"))
    left_s = sum(number(row["left_s"]) for row in rows if row["state"] not in OVER)
    return {
        "method": key[0],
        "size": key[1],
        "done": f"{n_done}/{len(rows)}",
        "state": ", ".join(rest) or "done",
        "tokens": f"{short_count(tokens)}/{short_count(planned)}",
        "loss": newest_loss(rows),
        "tokens/s": sum(number(row["tokens_per_s"]) for row in rows if row["state"] == "running") or None,
        "left": duration(left_s) if n_done < len(rows) else "",
        "why": first_reason(rows, now)[:REASON_CHARACTERS],
    }


def first_reason(rows: Sequence[Row], now: float) -> str:
    """Return the reason of a run that needs a look: one that failed, is in doubt, held or silent, else one that waits.

    A run that waits for its turn in a job that runs has nothing to tell.
    """
    for state in TELLING:
        reasons = [reason_of(row, now) for row in rows if row["state"] == state]
        telling = [reason for reason in reasons if reason and not reason.startswith(COMMONPLACE)]
        if telling:
            return telling[0]
    return ""


def reason_of(row: Row, now: float) -> str:
    """Say why a run is in its state; of one that runs, that it is silent."""
    silent_s = now - number(row["last_seen_at"])
    if row["state"] == "running" and silent_s > SILENT_S and number(row["last_seen_at"]):
        return f"no sign of life for {duration(silent_s)}"
    reason = row["state_reason"]
    return reason if isinstance(reason, str) else ""  # a frame holds NaN where the database has nothing


def newest_loss(rows: Sequence[Row]) -> float | None:
    """Return the validation loss of the furthest run that has one, else its training loss."""
    ordered = sorted(rows, key=lambda row: -int(row["n_tokens"]))
    for column in ("validation_loss_nats", "train_loss_nats"):
        found = [float(row[column]) for row in ordered if row[column] is not None and row[column] == row[column]]
        if found:
            return found[0]
    return None


def headline(progress: Progress) -> str:
    """Say in one line how far it is."""
    parts = [f"{progress.n_done}/{counted(progress.n_runs, 'run')} done"]
    parts += [f"{progress.states[state]} {state}" for state in ORDER if progress.states.get(state)]
    if progress.states.get("diverged"):
        parts.append(f"{progress.states['diverged']} of them diverged")
    parts.append(f"{short_count(progress.n_tokens)}/{short_count(progress.n_tokens_planned)} tokens")
    if progress.tokens_per_s:
        parts.append(f"{short_count(progress.tokens_per_s)} tokens/s")
    if progress.n_open:
        parts.append(f"{duration(progress.left_s)} left")
    return " · ".join(parts)


NEXT = {  # what a person does about runs that no command but theirs moves on
    "interrupted": "go on with: scalewright submit",
    "failed": "see why with: scalewright status --runs; another try with: scalewright retry, then submit",
    "unknown": "when you know that their jobs are gone: scalewright retry, then submit",
}

NEXT_ASKED = {  # the same about runs that a person stopped: said to who submits them all the same
    "cancelled": "go on with: scalewright resume, then submit",
    "held": "go on with: scalewright release, then submit",
}


def advice(progress: Progress, *, submits: bool = False) -> list[str]:
    """Say what to do about runs that stay as they are, once nothing is in a job any more, or where one `submits`."""
    if progress.n_open and not submits:
        return []
    steps = NEXT | NEXT_ASKED if submits else NEXT
    found = [(progress.states[state], state) for state in steps if progress.states.get(state)]
    return [f"{n} {'runs are' if n > 1 else 'run is'} {state}; {steps[state]}" for n, state in found]


def follow(
    read: Callable[[], "pd.DataFrame"], *, live: bool, refresh: Callable[[], Sequence[str]], tick_s: float | None = None
) -> Progress:
    """Show progress until nothing is in anybody's hands; quiet except for the last line where `live` is False."""
    with display(live) as show:
        for progress, talk in moments(read, refresh, tick_s or (TICK_S if live else QUIET_TICK_S)):
            show(progress, talk)
    return progress


def moments(
    read: Callable[[], "pd.DataFrame"], refresh: Callable[[], Sequence[str]], tick_s: float
) -> Iterator[tuple[Progress, Sequence[str]]]:
    """Look again and again, at most once a tick, until no run is running or waits in a job."""
    while True:
        began = time.monotonic()
        talk = refresh()
        progress = measure(read())
        yield progress, talk
        if progress.n_open == 0:
            return
        time.sleep(max(0.0, tick_s - (time.monotonic() - began)))


@contextmanager
def display(live: bool) -> Iterator[Callable[[Progress, Sequence[str]], None]]:
    """Give a function that shows a moment: redrawn in place on a terminal, nothing until the end elsewhere."""
    if not live:
        yield lambda progress, talk: None
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as view:
        yield lambda progress, talk: view.update(picture(progress, talk), refresh=True)


def picture(progress: Progress, talk: Sequence[str]) -> Any:
    """Draw a moment: the headline, a bar and the table by method and size."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from scalewright.orchestrator.report.tables import cell

    table = Table(box=None, pad_edge=False, header_style="dim")
    names = [name for name in (progress.groups[0] if progress.groups else {}) if any(r[name] for r in progress.groups)]
    for name in names:
        table.add_column(name, justify="right" if name in ("done", "tokens", "loss", "tokens/s", "left") else "left")
    for row in progress.groups:
        table.add_row(*[Text(cell(row[name])) for name in names])
    bar = Table.grid()
    bar.add_row(ProgressBar(total=1.0, completed=min(1.0, progress.share), width=60))
    return Group(Text(headline(progress)), bar, table, *[Text(line, style="yellow") for line in talk])
