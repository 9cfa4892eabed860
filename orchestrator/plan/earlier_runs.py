"""What the runs database tells a plan: states of runs, measured throughput, stored learning-rate laws. Reads only."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from scalewright.orchestrator.config.rates import RateLaw
from scalewright.orchestrator.plan.bill import ThroughputKey, Throughputs
from scalewright.orchestrator.plan.isoflop import FLOPS_PER_PARAMETER_TOKEN, Optimum
from scalewright.orchestrator.study import Study

if TYPE_CHECKING:
    from scalewright.db.engine import Database

SHAPE_COLUMNS = ("method", "gate", "width", "depth", "context", "batch_tokens", "precision")
MIN_PREFIX = 4


@dataclass(frozen=True)
class Known:
    """The state of each run, and the throughput of each shape that was trained."""

    states: Mapping[str, str] = field(default_factory=dict)
    throughputs: Throughputs = field(default_factory=dict)


@contextmanager
def open_existing(study: Study) -> "Iterator[Database | None]":
    """Open the study's database, or give None where there is none yet or it is empty.

    Raises DbError for a broken one.
    """
    if "://" not in study.database and not Path(study.database).exists():
        yield None
        return
    from scalewright.db.engine import open_database
    from scalewright.db.errors import EmptyDatabaseError

    try:
        database = open_database(study.database, create=False)
    except EmptyDatabaseError:
        yield None
        return
    try:
        yield database
    finally:
        database.close()


def read_known(study: Study) -> Known:
    """Ask the study's database for states and throughputs; one that does not exist yet knows nothing."""
    from scalewright.db import frames

    with open_existing(study) as database:
        if database is None:
            return Known()
        runs = frames.runs(database, columns=("run_id", "state", "tokens_per_s", "device", *SHAPE_COLUMNS))
    speeds: dict[ThroughputKey, list[float]] = {}
    for row in runs[runs["tokens_per_s"] > 0].to_dict("records"):
        speeds.setdefault(throughput_of_row(row), []).append(float(row["tokens_per_s"]))
    states = dict(zip(runs["run_id"], runs["state"], strict=True))
    return Known(states, {key: median(found) for key, found in speeds.items()})


def throughput_of_row(row: Mapping[Any, Any]) -> ThroughputKey:
    """Return the key that ledger.throughput_key gives a planned run of the same shape."""
    return (*(row[name] for name in SHAPE_COLUMNS), "cpu" if row["device"] == "cpu" else "gpu")


class StoredLaws:
    """Looks up learning-rate laws that `scalewright hyper` stored: by their experiment, or by fit id."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.found: dict[str, dict[str, Any]] = {}

    def __call__(self, name: str, label: str) -> RateLaw:
        """Return the law of a label; raise ValueError with the names that are stored."""
        if name not in self.found:
            self.found[name] = self.find(name)
        record = self.found[name]
        law = record["laws"].get(label)
        if law is None:
            known = ", ".join(record["laws"]) or "none"
            raise ValueError(f'the stored law "{name}" has none for {label} (methods: {known})')
        c, p, q = (float(law["params"][part]["value"]) for part in ("c", "p", "q"))
        return RateLaw(c, p, q, record["fit_id"])

    def find(self, name: str) -> dict[str, Any]:
        """Return a stored learning-rate law by its experiment or the start of its id, else ValueError."""
        stored = list(stored_rate_laws(self.study))
        for record in stored:
            if _is_named(record, name):
                return record
        known = ", ".join(sorted({str(record["experiment"]) for record in stored}))
        hint = f"stored for: {known}" if known else "none is stored; make one: scalewright hyper EXPERIMENT"
        raise ValueError(f'no stored learning-rate law "{name}" ({hint})')


def _is_named(record: Mapping[str, Any], name: str) -> bool:
    """Tell whether a stored fit is meant by a name: of its experiment, or the start of its id."""
    return bool(name == record["experiment"] or (len(name) >= MIN_PREFIX and record["fit_id"].startswith(name)))


def stored_rate_laws(study: Study) -> Iterator[dict[str, Any]]:
    """Yield the records of stored hyper-parameter fits of the peak learning rate, newest first."""
    return (one for one in _stored_fits(study) if one.get("setting") == "lr_peak" and "laws" in one)


def _stored_fits(study: Study) -> Iterator[dict[str, Any]]:
    """Yield the records of stored fits with their id, experiment and label, newest first."""
    from scalewright.db import frames

    with open_existing(study) as database:
        rows = [] if database is None else frames.fits(database).to_dict("records")
    for row in rows:
        yield json.loads(row["record"]) | {name: row[name] for name in ("fit_id", "experiment", "label")}


class StoredOptima:
    """Looks up compute-optimal sizes in stored fits: isoFLOP curves' powers, and laws A N^-alpha + B D^-beta."""

    def __init__(self, study: Study) -> None:
        self.study = study

    def __call__(self, name: str, method: str | None) -> Optimum:
        """Return the newest optimum of a method; raise ValueError with what is stored."""
        known = [(one, found) for one in _stored_fits(self.study) if (found := _optimum_of(one)) is not None]
        named = [(one, found) for one, found in known if _is_named(one, name)]
        if not named:
            there = ", ".join(sorted({str(one["experiment"]) for one, _ in known}))
            hint = (
                f"stored for: {there}"
                if there
                else "none is stored; make one: scalewright fit EXPERIMENT --law isoflop"
            )
            raise ValueError(f'no stored law "{name}" with an optimum ({hint})')
        labels = list(dict.fromkeys(str(one["label"]) for one, _ in named))
        if method is None and len(labels) > 1:
            raise ValueError(f'"{name}" has laws of several methods; give one as `method`: {", ".join(labels)}')
        found = next((found for one, found in named if method in (None, one["label"])), None)
        if found is None:
            raise ValueError(f'"{name}" has no law of {method} with an optimum (methods: {", ".join(labels)})')
        return found


def _optimum_of(record: Mapping[str, Any]) -> Optimum | None:
    """Return N* = G C^a of a stored fit, None where it has none; of a law by the formulas of `fitting/frontier.py`."""
    params = record.get("params") or {}
    value = {name: one["value"] for name, one in params.items() if isinstance(one, dict) and one.get("value")}
    if {"G_N", "a"} <= value.keys():
        return Optimum(value["G_N"], value["a"], counts_head=True)
    if not {"A", "alpha", "B", "beta"} <= value.keys() or "label" not in record:
        return None
    if not all(params[name].get("identified", True) for name in ("alpha", "beta")):
        return None
    total = value["alpha"] + value["beta"]
    scale = (value["alpha"] * value["A"] / (value["beta"] * value["B"])) ** (1 / total)
    exponent = value["beta"] / total
    return Optimum(scale * FLOPS_PER_PARAMETER_TOKEN**-exponent, exponent, counts_head=False)
