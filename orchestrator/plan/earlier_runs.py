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
        runs = frames.runs(database)
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
            if name == record["experiment"] or (len(name) >= MIN_PREFIX and record["fit_id"].startswith(name)):
                return record
        known = ", ".join(sorted({str(record["experiment"]) for record in stored}))
        hint = f"stored for: {known}" if known else "none is stored; make one: scalewright hyper EXPERIMENT"
        raise ValueError(f'no stored learning-rate law "{name}" ({hint})')


def stored_rate_laws(study: Study) -> Iterator[dict[str, Any]]:
    """Yield the records of stored hyper-parameter fits of the peak learning rate, newest first."""
    from scalewright.db import frames

    with open_existing(study) as database:
        rows = [] if database is None else frames.fits(database).to_dict("records")
    for row in rows:
        record = json.loads(row["record"])
        if record.get("setting") == "lr_peak" and "laws" in record:
            yield record | {"fit_id": row["fit_id"], "experiment": row["experiment"]}
