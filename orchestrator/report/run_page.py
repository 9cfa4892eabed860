"""One run on a page for a terminal, and two runs beside each other."""

import json
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from scalewright.db import frames
from scalewright.db.engine import Database
from scalewright.db.errors import DbError
from scalewright.db.typed import records
from scalewright.fitting.words import counted
from scalewright.orchestrator.report.terminal_plot import plot

if TYPE_CHECKING:
    import pandas as pd

RESULTS = ("state", "loss_nats", "bits_per_byte", "n_tokens", "step", "flops", "tokens_per_s", "train_wall_s", "device")

SHOWN = (
    *("n_params", "n_params_total", "n_tokens_planned", "n_tokens", "flops_per_token", "lr_peak", "seed", "precision"),
    *("loss_nats", "bits_per_byte", "train_loss_nats", "tokens_per_s", "wall_s", "wall_s_planned", "device"),
)
ATTEMPT = ("attempt", "outcome", "reason", "error", "host", "job_id", "resume_step", "last_step", "cut_step", "wall_s")


def describe(db: Database, run_id: str) -> dict[str, Any]:
    """Return everything about a run that fits on a page, as JSON can hold it."""
    row = frames.run_record(db, run_id)
    return {
        **row,
        "spec": json.loads(row["spec"]),
        "experiments": records(frames.memberships(db, run_id)),
        "attempts": records(frames.attempts(db, [run_id])),
        "evaluations": records(frames.evaluations(db, [run_id])),
        "events": records(frames.events(db, run_id)),
        "tags": frames.tags(db, run_id),
        "notes": records(frames.notes(db, run_id)),
    }


def curve_plot(db: Database, run_ids: list[str], metric: str) -> str:
    """Draw a metric of runs for a terminal; of what each layer has, a curve a layer."""
    points = metric_values(db, run_ids, metric)
    names = points["run_id"].astype(str)
    if "layer" in points:
        names = names + ", layer " + (points["layer"] + 1).astype(str)
    groups = points.groupby(names, sort=False)
    curves = {str(name): (group["step"].tolist(), group["value"].tolist()) for name, group in groups}
    return plot(curves)


def metric_values(db: Database, run_ids: list[str], metric: str) -> "pd.DataFrame":
    """Return a metric of runs: run_id, step, n_tokens, value, and layer where each layer has a value.

    Raises DbError with the names that exist for a metric that nobody logged.
    """
    of_layers = frames.layer_values(db, run_ids, [metric])
    if len(of_layers):
        return of_layers[["run_id", "layer", "step", "n_tokens", "value"]]
    return frames.curves(db, run_ids, metric)


def _spec_rows(spec: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (key path, value) of a spec; of a user's file its length and hash stand for the text."""
    for key, value in flatten(spec):
        is_code = key.startswith("model.code.")
        yield key, f"{counted(len(value.splitlines()), 'line')}, SHA-256 {_digest(value)}" if is_code else value


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (key path, value) of every leaf."""
    if isinstance(value, Mapping) and value:
        for key in value:
            yield from flatten(value[key], f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def differences(db: Database, first: str, second: str) -> list[dict[str, Any]]:
    """Return what differs between two runs, in what identifies them and in what was measured."""
    left, right = (_comparable(frames.run_record(db, run_id)) for run_id in (first, second))
    keys = [*left, *(key for key in right if key not in left)]
    return [
        {"what": key, first: left.get(key), second: right.get(key)}
        for key in keys
        if not same(left.get(key), right.get(key))
    ]


def same(left: Any, right: Any) -> bool:
    """Tell whether two values are equal; two that were not measured are."""
    both_missing = left != left and right != right
    return bool(both_missing or left == right)


def _comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict(_spec_rows(json.loads(row["spec"]))), **{f"result.{name}": row[name] for name in RESULTS}}


def page_lines(db: Database, page: Mapping[str, Any], metric: str) -> Iterator[str]:
    """Yield the page of a run: what it is, what became of it, its attempts, its losses and a curve."""
    yield f"run {page['run_id']}  {page['method']}  gate {page['gate']}  {page['state']}  {page['state_reason'] or ''}"
    yield f"in {', '.join(row['experiment'] for row in page['experiments']) or 'no experiment'}"
    if page["tags"]:
        yield f"tags {', '.join(page['tags'])}"
    yield ""
    for name in SHOWN:
        yield f"  {name:<18} {written(page[name])}"
    yield "\nspec"
    for key, value in _spec_rows(page["spec"]):
        yield f"  {key:<34} {written(value)}"
    yield "\nattempts" if page["attempts"] else "\nno attempt yet"
    for row in page["attempts"]:
        yield "  " + "  ".join(
            f"{name} {written(row[name])}" for name in ATTEMPT if _known(row[name]) and row[name] != ""
        )
    for row in page["evaluations"]:
        final = "  final" if row["final"] else ""
        yield f"  {row['split']} at {written(row['n_tokens'])} tokens: {written(row['loss_nats'])} nats a token{final}"
    for note in page["notes"]:
        yield f"note {time.strftime('%Y-%m-%d %H:%M', time.localtime(note['time']))}  {note['text']}"
    yield ""
    yield from _plotted(db, str(page["run_id"]), metric)


def _plotted(db: Database, run_id: str, metric: str) -> Iterator[str]:
    try:
        yield f"{metric}\n{curve_plot(db, [run_id], metric)}"
    except DbError as missing:
        yield str(missing)


def _known(value: Any) -> bool:
    return value is not None and value == value


def written(value: Any) -> str:
    """Write a value for a person."""
    if not _known(value):
        return "-"
    if isinstance(value, float):
        return (
            f"{value:,.0f}" if 1e5 <= abs(value) < 1e15 or value.is_integer() and abs(value) >= 1e3 else f"{value:.6g}"
        )
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
