"""Anyone's points -> runs with source = import, so that every verb works on them. Bad rows are refused by line."""

import difflib
import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewright.db.engine import open_database
from scalewright.db.points import Point, record_points
from scalewright.db.rows import to_json
from scalewright.orchestrator.errors import Partial, UserError
from scalewright.orchestrator.runs.spec import RUN_ID_CHARACTERS
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.sync.point_files import Row, read_rows

NUMBERS = (
    "n_params",
    "n_params_total",
    "n_tokens",
    "unique_tokens",
    "flops",
    "loss",
    "bits_per_byte",
    "step",
    "seed",
    "lr_peak",
)
WORDS = ("method", "gate", "label", "size", "budget", "run")
NAMES = (*NUMBERS, *WORDS)
REQUIRED = ("n_params", "loss")
POSITIVE = tuple(name for name in NUMBERS if name not in ("step", "seed"))
TOKEN_RULES = {"6ND": lambda values: values["flops"] / (6 * values["n_params"])}
PAIR = re.compile(r'\s*([^=,]+?)\s*=\s*(?:"([^"]*)"|([^,]*))\s*(?:,|$)')
MOST_SHOWN = 5
METHOD = "imported"


@dataclass(frozen=True)
class ImportReceipt:
    """How many runs were new, how many were there already, and which lines were refused and why."""

    name: str
    n_new: int
    n_existing: int
    refused: list[tuple[int, str]]

    def summary(self) -> dict[str, Any]:
        refused = [{"line": line, "reason": reason} for line, reason in self.refused]
        return {"experiment": self.name, "n_new": self.n_new, "n_existing": self.n_existing, "refused": refused}

    def sentence(self) -> str:
        return f"{self.name}: {self.n_new} new runs, {self.n_existing} were there already"

    def raise_if_refused(self) -> None:
        """Raise Partial that names the first lines that were refused."""
        if self.refused:
            shown = "; ".join(f"line {line}: {reason}" for line, reason in self.refused[:MOST_SHOWN])
            more = f"; and {len(self.refused) - MOST_SHOWN} more" if len(self.refused) > MOST_SHOWN else ""
            raise Partial(f"{len(self.refused)} rows were refused ({shown}{more})")


@dataclass(frozen=True)
class Measured:
    """One usable row: numbers and words by our names, with its line."""

    line: int
    values: Mapping[str, Any]


def parse_columns(text: str) -> dict[str, str]:
    """Read `n_params="Model Size",loss=final`: our name = the file's name. Raises UserError for unknown names."""
    mapped: dict[str, str] = {}
    end = 0
    while end < len(text):
        pair = PAIR.match(text, end)
        if pair is None or pair[1] not in NAMES:
            near = difflib.get_close_matches(pair[1], NAMES, n=1) if pair else []
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UserError(f"--columns {text[end:]!r}: expected NAME=COLUMN with a NAME of {', '.join(NAMES)}{hint}")
        mapped[pair[1]] = pair[2] if pair[2] is not None else pair[3].strip()
        end = pair.end()
    return mapped


def import_file(
    study: Study,
    path: Path,
    name: str,
    *,
    columns: Mapping[str, str] | None = None,
    tokens_from_flops: str | None = None,
) -> ImportReceipt:
    """Store the points of a file as the experiment `name`; the same file again adds nothing.

    Rows with the same `run` (or, where `step` is given, the same everything but step, tokens, FLOPs and loss) are one
    run whose last row is its final loss. n_params counts as whatever the file counted, under both conventions, unless
    n_params_total is given too. Raises UserError for a missing file or column, or when no row is usable.
    """
    if not name.strip():
        raise UserError("--as: a name for the experiment is needed")
    rows = list(read_rows(path))
    mapped = find_columns(path, rows, columns or {}, tokens_from_flops)
    usable, refused = sort_out(rows, mapped, tokens_from_flops)
    if not usable:
        first = f" (line {refused[0][0]}: {refused[0][1]})" if refused else ""
        raise UserError(f"{path}: no row can be used{first}")
    points = points_of(usable)
    content = {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "columns": mapped}
    database = open_database(study.database)
    receipt = record_points(database, name, to_json({**content, "tokens_from_flops": tokens_from_flops}), points)
    database.close()
    return ImportReceipt(name, receipt.n_new, receipt.n_existing, refused)


def find_columns(
    path: Path, rows: Sequence[Row], columns: Mapping[str, str], tokens_from_flops: str | None
) -> dict[str, str]:
    """Return the file's column for each of our names; a column that has our name needs no mapping."""
    if tokens_from_flops is not None and tokens_from_flops not in TOKEN_RULES:
        raise UserError(f"--tokens-from-flops {tokens_from_flops!r}: unknown rule (rules: {', '.join(TOKEN_RULES)})")
    present = list(dict.fromkeys(name for _, row in rows for name in row))
    exported = {"loss": "loss_nats"} if "loss_nats" in present else {}  # what `export` calls it
    mapped = exported | {name: name for name in NAMES if name in present} | dict(columns)
    needed = [*REQUIRED, "n_tokens" if tokens_from_flops is None else "flops"]
    for name in [*needed, *columns]:
        if mapped.get(name) not in present:
            wanted = mapped.get(name, name)
            near = difflib.get_close_matches(wanted, present, n=1)
            hint = f"did you mean --columns {name}={near[0]}?" if near else f"columns: {', '.join(present) or 'none'}"
            raise UserError(f"{path}: no column {wanted!r} for {name}; {hint}")
    return mapped


def sort_out(
    rows: Sequence[Row], mapped: Mapping[str, str], tokens_from_flops: str | None
) -> tuple[list[Measured], list[tuple[int, str]]]:
    """Part rows that can be used from rows that are refused."""
    usable, refused = [], []
    for line, row in rows:
        try:
            usable.append(Measured(line, read_row(row, mapped, tokens_from_flops)))
        except ValueError as trouble:
            refused.append((line, str(trouble)))
    return usable, refused


def read_row(row: Mapping[str, Any], mapped: Mapping[str, str], tokens_from_flops: str | None) -> dict[str, Any]:
    """Read one row; raises ValueError that says what is wrong with it."""
    values: dict[str, Any] = {}
    for name, column in mapped.items():
        raw = row.get(column)
        if raw is not None and str(raw).strip() != "":
            values[name] = str(raw).strip() if name in WORDS else number(column, raw)
    if "n_tokens" not in values and tokens_from_flops and {"flops", "n_params"} <= set(values):
        values["n_tokens"] = TOKEN_RULES[tokens_from_flops](values)
    for name in (*REQUIRED, "n_tokens"):
        if name not in values:
            raise ValueError(f"no {mapped.get(name, name)}")
    for name in POSITIVE:
        if name in values and not values[name] > 0:
            raise ValueError(f"{mapped.get(name, name)} is {values[name]:g}, expected more than 0")
    return values


def number(column: str, raw: Any) -> float:
    try:
        value = float(raw)
    except (TypeError, ValueError):
        raise ValueError(f"{column} is {str(raw)[:40]!r}, expected a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{column} is {value}, expected a finite number")
    return value


def points_of(rows: Sequence[Measured]) -> list[Point]:
    """Make one point of each run; equal rows of a file are runs of their own."""
    seen: Counter[str] = Counter()
    points = []
    for group in groups_of(rows):
        content = to_json([row.values for row in group])
        seen[content] += 1
        identity = {"source": "import", "rows": [dict(row.values) for row in group], "copy": seen[content]}
        run_id = hashlib.sha256(to_json(identity).encode()).hexdigest()[:RUN_ID_CHARACTERS]
        points.append(point_of(run_id, identity, group))
    return points


def groups_of(rows: Sequence[Measured]) -> list[list[Measured]]:
    """Gather the rows of each run, the final one last."""
    groups: dict[str, list[Measured]] = {}
    for row in rows:
        if "run" in row.values:
            key = to_json([row.values["run"], row.values.get("method")])
        elif "step" in row.values:
            moving = ("step", "n_tokens", "flops", "loss", "bits_per_byte")
            key = to_json({name: value for name, value in row.values.items() if name not in moving})
        else:
            key = f"line {row.line}"
        groups.setdefault(key, []).append(row)
    return [
        sorted(group, key=lambda row: (row.values.get("step", 0), row.values["n_tokens"])) for group in groups.values()
    ]


def point_of(run_id: str, identity: Mapping[str, Any], group: Sequence[Measured]) -> Point:
    last = group[-1].values
    method, gate = last.get("method", METHOD), last.get("gate", "none")
    flops_per_token = last["flops"] / last["n_tokens"] if "flops" in last else 6.0 * last["n_params"]
    columns = {
        "method": method,
        "gate": gate,
        "n_params": round(last["n_params"]),
        "n_params_total": round(last.get("n_params_total", last["n_params"])),
        "n_tokens_planned": round(last["n_tokens"]),
        "unique_tokens": round(last["unique_tokens"]) if "unique_tokens" in last else None,
        "flops_per_token": flops_per_token,
        "flop_convention": "as imported" if "flops" in last else "6n",
        "flops_planned": flops_per_token * last["n_tokens"],
        "seed": round(last["seed"]) if "seed" in last else None,
        "lr_peak": last.get("lr_peak"),
    }
    label = last.get("label") or (method if gate == "none" else f"{method}+{gate}")
    size, budget = last.get("size"), last.get("budget")
    evaluations = [evaluation_row(place, row.values, place == len(group)) for place, row in enumerate(group, 1)]
    return Point(run_id, identity, label, columns, result_row(last), evaluations, size, budget)


def result_row(last: Mapping[str, Any]) -> dict[str, Any]:
    tokens = {"n_tokens": round(last["n_tokens"]), "last_tokens": round(last["n_tokens"])}
    loss = {"loss_nats": last["loss"], "validation_loss_nats": last["loss"], "bits_per_byte": last.get("bits_per_byte")}
    return {**tokens, **loss, "step": round(last["step"]) if "step" in last else None}


def evaluation_row(place: int, values: Mapping[str, Any], is_final: bool) -> dict[str, Any]:
    """Make a row of evaluations; without steps the rows of a run are numbered."""
    known = {"step": round(values.get("step", place)), "n_tokens": round(values["n_tokens"]), "split": "validation"}
    measured = {"loss_nats": values["loss"], "bits_per_byte": values.get("bits_per_byte"), "n_tokens_evaluated": None}
    return {**known, **measured, "final": is_final, "annealed": is_final, "attempt": 0, "time": None}
