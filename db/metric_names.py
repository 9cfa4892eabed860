"""Names of metrics -> numbers, with units and directions read off the name."""

import re

from sqlalchemy import select

from scalewright.db.engine import Database
from scalewright.db.rows import upsert
from scalewright.db.schema import metric_keys

NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
MOST_NAMES = 10_000
UNITS = {  # suffix -> unit, what is better
    "loss_nats": ("nats/token", "lower"),
    "_nats": ("nats", None),
    "bits_per_byte": ("bits/byte", "lower"),
    "tokens_per_s": ("tokens/s", "higher"),
    "_per_s": ("1/s", "higher"),
    "_s": ("s", None),
    "_bytes": ("bytes", None),
    "_fraction": ("1", None),
    "norm": ("1", None),
    "lr": ("1", None),
}


def unit_of(name: str) -> tuple[str | None, str | None]:
    """Return (unit, direction) of the first suffix that fits."""
    return next((found for suffix, found in UNITS.items() if name.endswith(suffix)), (None, None))


class MetricKeys(dict[str, int]):
    """Numbers by name; a new name is given a number in the database at its first use. ValueError for unusable names."""

    def __init__(self, db: Database):
        self._db = db
        super().__init__(_stored_keys(db))

    def __missing__(self, name: str) -> int:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name[:40]!r} is not a name for a metric")
        if len(self) >= MOST_NAMES:
            raise ValueError(f"more than {MOST_NAMES} names of metrics; {name[:40]!r} is not stored")
        unit, direction = unit_of(name)
        row = {"name": name, "unit": unit, "direction": direction}
        with self._db.write() as connection:
            upsert(connection, metric_keys, [row], ["name"], change=())
        self.update(_stored_keys(self._db))
        return self[name]


def _stored_keys(db: Database) -> dict[str, int]:
    with db.read() as connection:
        return dict(connection.execute(select(metric_keys.c.name, metric_keys.c.key)).all())
