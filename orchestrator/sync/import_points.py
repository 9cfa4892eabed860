"""Anyone's points -> runs with source = import, so that every verb works on them. Bad rows are refused by line."""

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scalewright.db.engine import open_database
from scalewright.db.points import Point, record_points
from scalewright.db.rows import to_json
from scalewright.fitting.words import counted
from scalewright.orchestrator.errors import Partial, UserError
from scalewright.orchestrator.runs.spec import RUN_ID_CHARACTERS
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.sync.kept import Import, keep
from scalewright.orchestrator.sync.point_cells import (
    UNITS,
    is_nothing,
    read_amount,
    read_number,
    read_truth,
    read_whole,
)
from scalewright.orchestrator.sync.point_checks import named, suspicions
from scalewright.orchestrator.sync.point_columns import (
    AMOUNTS,
    MOVING,
    NAMES,
    POSITIVE,
    REQUIRED,
    TOKEN_RULES,
    WHOLE,
    WORDS,
)
from scalewright.orchestrator.sync.point_files import Row, read_rows

PAIR = re.compile(r'\s*([^=,]+?)\s*=\s*(?:"([^"]*)"|([^,]*))\s*(?:,|$)')
EXPORTED = {"run_id", "loss_nats", "label"}  # the columns by which a file of `export` is known
MOST_SHOWN = 5
METHOD = "imported"
AGAIN = "equal to an earlier row and not counted twice"


@dataclass(frozen=True)
class ImportReceipt:
    """How many runs were new, how many were there already, which lines were refused and why, and what looks wrong."""

    name: str
    n_new: int
    n_existing: int
    refused: list[tuple[int, str]]
    notes: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        refused = [{"line": line, "reason": reason} for line, reason in self.refused]
        counts = {"n_new": self.n_new, "n_existing": self.n_existing}
        return {"experiment": self.name, **counts, "refused": refused, "notes": self.notes}

    def sentence(self) -> str:
        """Say how many runs are new, in one line."""
        return f"{self.name}: {counted(self.n_new, 'new run')}, {self.n_existing} were there already"

    def raise_if_refused(self) -> None:
        """Raise Partial that names the first lines that were refused."""
        if self.refused:
            shown = "; ".join(f"line {line}: {reason}" for line, reason in self.refused[:MOST_SHOWN])
            more = f"; and {len(self.refused) - MOST_SHOWN} more" if len(self.refused) > MOST_SHOWN else ""
            raise Partial(f"{counted(len(self.refused), 'row')} refused ({shown}{more})")


@dataclass(frozen=True)
class Asked:
    """How a file is to be read: its column for each of our names, units, settings to keep, and where tokens are from.

    columns: found ones once a file was seen. units: of amounts, such as n_params=B. settings: columns of the file that
    say how a run was trained, kept by the file's names; runs that differ in one are never taken for seeds of another.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    tokens_from_flops: str | None = None


@dataclass(frozen=True)
class Measured:
    """One usable row: numbers and words by our names, with its line and the cells as the file has them."""

    line: int
    values: Mapping[str, Any]
    cells: Mapping[str, Any]


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


def parse_units(text: str) -> dict[str, str]:
    """Read `n_params=B,n_tokens=M`. Raises UserError for a name that is no amount, or an unknown unit."""
    units = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, unit = (word.strip() for word in part.partition("="))
        if name not in AMOUNTS or unit.lower() not in UNITS:
            raise UserError(f"--units {part}: expected NAME=UNIT with a NAME of {', '.join(AMOUNTS)} and K, M, B or T")
        units[name] = unit
    return units


def import_file(study: Study, path: Path, name: str, asked: Asked | None = None) -> ImportReceipt:
    """Store the points of a file as the experiment `name`; the same file again adds nothing.

    Rows with the same `run` (or, where `step` is given, the same everything but step, tokens, FLOPs and loss) are one
    run whose last row is its final loss. Rows that are equal in every column are one run told twice. n_params counts
    as whatever the file counted, under both conventions, unless n_params_total is given too. Raises UserError for a
    missing file or column, or when no row is usable.
    """
    if not name.strip():
        raise UserError("--as: a name for the experiment is needed")
    asked = asked or Asked()
    rows = list(read_rows(path))
    asked = replace(asked, columns=find_columns(path, rows, asked))
    usable, refused = sort_out(rows, asked)
    if not usable:
        first = f" (line {refused[0][0]}: {refused[0][1]})" if refused else ""
        raise UserError(f"{path}: no row can be used{first}")
    once, again = without_repeats(usable)
    points = points_of(once)
    content = {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "columns": asked.columns}
    said = {key: value for key, value in (("units", asked.units), ("settings", asked.settings)) if value}
    description = to_json({**content, **said, "tokens_from_flops": asked.tokens_from_flops})
    database = open_database(study.database)
    receipt = record_points(database, name, description, points)
    database.close()
    keep(study, Import(name, description, points))
    notes = [
        *unread_notes(once, asked),
        *repeat_notes(once, again),
        *suspicions([(row.line, row.values) for row in once]),
    ]
    return ImportReceipt(name, receipt.n_new, receipt.n_existing, refused, notes)


def find_columns(path: Path, rows: Sequence[Row], asked: Asked) -> dict[str, str]:
    """Return the file's column for each of our names; a column that has our name needs no mapping."""
    rule = asked.tokens_from_flops
    if rule is not None and rule not in TOKEN_RULES:
        raise UserError(f"--tokens-from-flops {rule!r}: unknown rule (rules: {', '.join(TOKEN_RULES)})")
    present = list(dict.fromkeys(name for row in rows for name in row.cells))
    exported = {"loss": "loss_nats"} if "loss_nats" in present else {}  # what `export` calls it
    mapped = exported | {name: name for name in NAMES if name in present} | dict(asked.columns)
    needed = [*REQUIRED, "n_tokens" if rule is None else "flops"]
    for name in [*needed, *asked.columns]:
        wanted = mapped.get(name, name)
        if wanted not in present:
            near = difflib.get_close_matches(wanted, present, n=1)
            hint = f"did you mean --columns {name}={near[0]}?" if near else f"columns: {', '.join(present) or 'none'}"
            raise UserError(f"{path}: no column {wanted!r} for {name}; {hint}")
    for wanted in asked.settings:
        if wanted not in present:
            raise UserError(f"{path}: no column {wanted!r} for --settings; columns: {', '.join(present) or 'none'}")
    return mapped


def sort_out(rows: Sequence[Row], asked: Asked) -> tuple[list[Measured], list[tuple[int, str]]]:
    """Part rows that can be used from rows that are refused."""
    usable, refused = [], []
    for row in rows:
        try:
            if row.trouble:
                raise ValueError(row.trouble)
            usable.append(Measured(row.line, read_row(row.cells, asked), row.cells))
        except ValueError as trouble:
            refused.append((row.line, str(trouble)))
    return usable, refused


def read_row(cells: Mapping[str, Any], asked: Asked) -> dict[str, Any]:
    """Read one row; raises ValueError that says what is wrong with it."""
    values: dict[str, Any] = {}
    for name, column in asked.columns.items():
        raw = cells.get(column)
        if name in REQUIRED and not str("" if raw is None else raw).strip():
            raise ValueError(f"no {column}")
        if name in REQUIRED or not is_nothing(raw):
            values[name] = _read_cell(name, column, raw, asked.units.get(name))
    if "n_tokens" not in values and asked.tokens_from_flops and "flops" in values:
        values["n_tokens"] = TOKEN_RULES[asked.tokens_from_flops](values)
    if "n_tokens" not in values:
        raise ValueError(f"no {asked.columns.get('n_tokens', 'n_tokens')}")
    for name in POSITIVE:
        if name in values and not values[name] > 0:
            raise ValueError(f"{asked.columns.get(name, name)} is {values[name]:g}, expected more than 0")
    if asked.settings:
        values["settings"] = {column: str(cells.get(column, "")).strip() for column in asked.settings}
    return values


def _read_cell(name: str, column: str, raw: Any, unit: str | None) -> Any:
    if name in WORDS:
        return str(raw).strip()
    if name in AMOUNTS:
        return read_amount(column, raw, unit)
    reader = read_truth if name == "holdout" else read_whole if name in WHOLE else read_number
    return reader(column, raw)


def without_repeats(rows: Sequence[Measured]) -> tuple[list[Measured], list[Measured]]:
    """Part rows from those that tell an earlier one again: equal in every column, or in all that is read and a seed."""
    seen: set[str] = set()
    once: list[Measured] = []
    again: list[Measured] = []
    for row in rows:
        keys = {to_json({name: str(cell).strip() for name, cell in row.cells.items()})}
        if "seed" in row.values:
            keys.add(to_json(row.values))
        (again if keys & seen else once).append(row)
        seen |= keys
    return once, again


def unread_notes(rows: Sequence[Measured], asked: Asked) -> list[str]:
    """Name the columns that differ between rows and are not read: runs that differ in them are taken for alike.

    A file that `export` wrote names no such column: its labels already tell runs apart.
    """
    if rows and rows[0].cells.keys() >= EXPORTED:
        return []
    read = {*asked.columns.values(), *asked.settings}
    values: dict[str, set[str]] = {}
    for row in rows:
        for column, cell in row.cells.items():
            if column not in read:
                values.setdefault(column, set()).add(str(cell).strip())
    unread = [column for column, seen in values.items() if len(seen) > 1]
    if not unread:
        return []
    more = f" and {len(unread) - MOST_SHOWN} more" if len(unread) > MOST_SHOWN else ""
    return [
        f"not read: {', '.join(unread[:MOST_SHOWN])}{more}. Keep a column that says how a run was trained: "
        f"--settings {unread[0]}"
    ]


def repeat_notes(once: Sequence[Measured], again: Sequence[Measured]) -> list[str]:
    """Say which rows were not counted twice, and which look like another one without being equal to it."""
    notes = []
    if again:
        notes.append(f"{named(row.line for row in again)}: {AGAIN}; give separate runs a seed each, in a column seed")
    alone = [row for row in once if not {"step", "run"} & set(row.values)]
    same_loss = lines_again(row for row in alone if "seed" not in row.values)
    if same_loss:
        notes.append(
            f"{named(same_loss)}: the sizes, tokens and loss of an earlier row, to the last digit; counted twice"
        )
    same_seed = lines_again((row for row in alone if "seed" in row.values), besides=("loss", "bits_per_byte"))
    if same_seed:
        notes.append(
            f"{named(same_seed)}: the settings and the seed of an earlier row, with another loss. These count as "
            "separate runs; name what they differ in (--settings COLUMN), or take all but one out"
        )
    return notes


def lines_again(rows: Iterable[Measured], besides: Sequence[str] = ()) -> list[int]:
    """Return the lines whose values, `besides` some, an earlier row has."""
    seen: set[str] = set()
    found = []
    for row in rows:
        key = to_json({name: value for name, value in row.values.items() if name not in besides})
        found += [row.line] if key in seen else []
        seen.add(key)
    return found


def points_of(rows: Sequence[Measured]) -> list[Point]:
    """Make one point of each run; equal rows of a file are runs of their own."""
    seen: Counter[str] = Counter()
    points = []
    for group in groups_of(rows):
        content = to_json([row.values for row in group])
        seen[content] += 1
        identity = {"source": "import", "rows": [dict(row.values) for row in group], "copy": seen[content]}
        run_id = hashlib.sha256(to_json(identity).encode()).hexdigest()[:RUN_ID_CHARACTERS]
        points.append(_point_of(run_id, identity, group))
    return points


def groups_of(rows: Sequence[Measured]) -> list[list[Measured]]:
    """Gather the rows of each run, the final one last."""
    groups: dict[str, list[Measured]] = {}
    for row in rows:
        if "run" in row.values:
            key = to_json([row.values["run"], row.values.get("method")])
        elif "step" in row.values:
            key = to_json({name: value for name, value in row.values.items() if name not in MOVING})
        else:
            key = f"line {row.line}"
        groups.setdefault(key, []).append(row)
    return [
        sorted(group, key=lambda row: (row.values.get("step", 0), row.values["n_tokens"])) for group in groups.values()
    ]


def _point_of(run_id: str, identity: Mapping[str, Any], group: Sequence[Measured]) -> Point:
    last = group[-1].values
    method, gate = last.get("method", METHOD), last.get("gate", "none")
    flops_per_token = last["flops"] / last["n_tokens"] if "flops" in last else 6.0 * last["n_params"]
    columns = {
        "method": method,
        "gate": gate,
        "n_params": last["n_params"],
        "width": int(last["width"]) if "width" in last else None,
        "depth": int(last["depth"]) if "depth" in last else None,
        "n_params_total": last.get("n_params_total", last["n_params"]),
        "n_tokens_planned": last["n_tokens"],
        "unique_tokens": last.get("unique_tokens"),
        "batch_tokens": last.get("batch_tokens"),
        "flops_per_token": flops_per_token,
        "flop_convention": "as imported" if "flops" in last else "6n",
        "flops_planned": flops_per_token * last["n_tokens"],
        "seed": int(last["seed"]) if "seed" in last else None,
        "lr_peak": last.get("lr_peak"),
    }
    label = last.get("label") or (method if gate == "none" else f"{method}+{gate}")
    size, budget = last.get("size"), last.get("budget")
    evaluations = [evaluation_row(place, row.values, place == len(group)) for place, row in enumerate(group, 1)]
    holdout = last.get("holdout", False)
    return Point(run_id, identity, label, columns, _result_row(last), evaluations, size, budget, holdout)


def _result_row(last: Mapping[str, Any]) -> dict[str, Any]:
    tokens = {"n_tokens": last["n_tokens"], "last_tokens": last["n_tokens"]}
    loss = {"loss_nats": last["loss"], "validation_loss_nats": last["loss"], "bits_per_byte": last.get("bits_per_byte")}
    return {**tokens, **loss, "step": int(last["step"]) if "step" in last else None}


def evaluation_row(place: int, values: Mapping[str, Any], is_final: bool) -> dict[str, Any]:
    """Make a row of evaluations; without steps the rows of a run are numbered."""
    known = {"step": int(values.get("step", place)), "n_tokens": values["n_tokens"], "split": "validation"}
    measured = {"loss_nats": values["loss"], "bits_per_byte": values.get("bits_per_byte"), "n_tokens_evaluated": None}
    return {**known, **measured, "final": is_final, "annealed": is_final, "attempt": 0, "time": None}
