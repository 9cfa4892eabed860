"""How far an experiment is: numbers from the progress frame, and a live view of them. Knows frames, not jobs."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

TICK_S = 1.0
OVER = ("completed", "diverged", "failed", "cancelled", "held")
ORDER = ("running", "queued", "claimed", "planned", "interrupted", "unknown", "held", "failed", "cancelled")
SEEN_LATELY_S = 60.0


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
        return self.states.get("completed", 0) + self.states.get("diverged", 0)

    @property
    def n_open(self) -> int:
        """Runs that are in somebody's hands and not over."""
        return sum(self.states.get(state, 0) for state in ("running", "queued", "claimed"))

    @property
    def share(self) -> float:
        """Part of the planned tokens that is trained."""
        return self.n_tokens / self.n_tokens_planned if self.n_tokens_planned else 0.0


def measure(frame: "pd.DataFrame", now: float | None = None) -> Progress:
    """Sum the progress frame (db.frames.progress) up."""
    states = {str(state): int(n) for state, n in frame["state"].value_counts().items()}
    running = frame[frame["state"] == "running"]
    alive = running[running["last_seen_at"] > (now or time.time()) - SEEN_LATELY_S]
    over = frame["state"].isin(["completed", "diverged"])
    planned = frame["n_tokens_planned"].where(
        ~over, frame["n_tokens"]
    )  # a diverged run's remaining tokens are not owed
    return Progress(
        n_runs=len(frame),
        states=states,
        n_tokens=int(frame["n_tokens"].sum()),
        n_tokens_planned=int(planned.sum()),
        tokens_per_s=float(alive["tokens_per_s"].fillna(0.0).sum()),
        left_s=time_left(frame, len(running)),
        groups=[group_row(key, group) for key, group in frame.groupby(["label", "size"], sort=False)],
    )


def time_left(frame: "pd.DataFrame", n_at_once: int) -> float | None:
    """Estimate the seconds left: what is owed, shared among the runs that train now, but no less than the longest."""
    owed = frame[frame["state"].isin(["running", "queued", "claimed"])]["left_s"]
    if owed.empty:
        return 0.0
    if n_at_once == 0 or owed.isna().all():
        return None
    return max(float(owed.sum()) / n_at_once, float(owed.max()))


def group_row(key: Any, group: "pd.DataFrame") -> dict[str, Any]:
    """Sum the runs of one method at one size up: a row of the table."""
    running = group[group["state"] == "running"]
    counts = group["state"].value_counts()
    rest = [f"{int(counts[state])} {state}" for state in ORDER if state in counts]
    n_done = int(group["state"].isin(["completed", "diverged"]).sum())
    reasons = [str(reason) for reason in running["state_reason"].dropna() if reason]
    reasons += [str(r) for r in group[group["state"].isin(["failed", "unknown", "held"])]["state_reason"].dropna()]
    return {
        "method": key[0],
        "size": key[1],
        "done": f"{n_done}/{len(group)}",
        "state": ", ".join(rest) or "done",
        "tokens": f"{tokens_text(group['n_tokens'].sum())}/{tokens_text(group['n_tokens_planned'].sum())}",
        "loss": newest_loss(group),
        "tokens/s": float(running["tokens_per_s"].sum()) if len(running) else None,
        "left": duration_text(float(group[~group["state"].isin(OVER)]["left_s"].sum())) if n_done < len(group) else "",
        "why": reasons[0][:60] if reasons else "",
    }


def newest_loss(group: "pd.DataFrame") -> float | None:
    """Return the validation loss of the furthest run that has one, else its training loss."""
    ordered = group.sort_values("n_tokens", ascending=False)
    for column in ("validation_loss_nats", "train_loss_nats"):
        found = ordered[column].dropna()
        if len(found):
            return float(found.iloc[0])
    return None


def tokens_text(n: float) -> str:
    """Write a number of tokens as a person says it: 812k, 3.2M, 1.5B."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size:
            return f"{n / size:.3g}{unit}"
    return f"{n:.0f}"


def duration_text(seconds: float | None) -> str:
    """Write a duration with its two largest units: 45 s, 3 min 20 s, 2 h 5 min, 4 d 3 h."""
    if seconds is None or seconds != seconds:
        return "?"
    whole = round(seconds)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def headline(progress: Progress) -> str:
    """Say in one line how far it is."""
    parts = [f"{progress.n_done}/{progress.n_runs} runs done"]
    parts += [f"{progress.states[state]} {state}" for state in ORDER if progress.states.get(state)]
    if progress.states.get("diverged"):
        parts.append(f"{progress.states['diverged']} of them diverged")
    parts.append(f"{tokens_text(progress.n_tokens)}/{tokens_text(progress.n_tokens_planned)} tokens")
    if progress.tokens_per_s:
        parts.append(f"{tokens_text(progress.tokens_per_s)} tokens/s")
    if progress.n_open:
        parts.append(f"{duration_text(progress.left_s)} left")
    return " · ".join(parts)


def follow(
    read: Callable[[], "pd.DataFrame"], *, live: bool, refresh: Callable[[], Sequence[str]], tick_s: float = TICK_S
) -> Progress:
    """Show progress until nothing is in anybody's hands; quiet except for the last line where `live` is False."""
    with display(live) as show:
        for progress, talk in moments(read, refresh, tick_s):
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

    with Live(console=Console(stderr=True), auto_refresh=False, transient=False) as view:
        yield lambda progress, talk: view.update(picture(progress, talk), refresh=True)


def picture(progress: Progress, talk: Sequence[str]) -> Any:
    """Draw a moment: the headline, a bar and the table by method and size."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from orchestrator.cli.tables import cell

    table = Table(box=None, pad_edge=False, header_style="dim")
    names = [name for name in (progress.groups[0] if progress.groups else {}) if any(r[name] for r in progress.groups)]
    for name in names:
        table.add_column(name, justify="right" if name in ("done", "tokens", "loss", "tokens/s", "left") else "left")
    for row in progress.groups:
        table.add_row(*[cell(row[name]) for name in names])
    bar = ProgressBar(total=1.0, completed=min(1.0, progress.share), width=60)
    return Group(Text(headline(progress)), bar, table, *[Text(line, style="yellow") for line in talk])
