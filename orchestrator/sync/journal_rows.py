"""Bytes of a journal -> rows. Trusts nothing that it reads; knows no database and no files."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from scalewright.db.attempts import LARGEST_WHOLE, JournalPart, real, whole, words
from scalewright.orchestrator.runs.journal import NON_FINITE, is_outcome

EXCERPT_BYTES = 120
LONGEST_NAME = 200
MOST_LAYERS = 10_000
Keys = Mapping[str, int]


def read_lines(part: JournalPart, chunk: bytes, keys: Keys) -> None:
    """Take every line of `chunk`, which ends with a newline, into `part`; a bad line is noted and passed.

    keys: the number of each metric by name; it may raise ValueError for a name that cannot be used.
    """
    offset = part.n_bytes
    for line in chunk.split(b"\n")[:-1]:
        try:
            record = orjson.loads(line)
            READERS[record["type"]](part, record, keys)
        except (ValueError, TypeError, KeyError, AttributeError) as trouble:
            read_doubtful_line(part, line, offset, keys, trouble)
        offset += len(line) + 1
        part.n_lines += 1
    part.n_bytes = offset


def read_doubtful_line(part: JournalPart, line: bytes, offset: int, keys: Keys, trouble: Exception) -> None:
    """Read a line once more without the zero bytes that a crash may leave before it, else note what is wrong."""
    stripped = line.lstrip(b"\0")
    if stripped != line and stripped:
        try:
            record = orjson.loads(stripped)
            READERS[record["type"]](part, record, keys)
            return
        except (ValueError, TypeError, KeyError, AttributeError) as second:
            trouble = second
    note_error(part, offset, line, _describe(trouble))


def note_error(part: JournalPart, offset: int, line: bytes, message: str) -> None:
    """Keep a line that cannot be used, with its place in the file and its printable beginning."""
    excerpt = line[:EXCERPT_BYTES].decode("utf-8", "replace")
    part.errors.append((offset, message[:LONGEST_NAME], "".join(c if c.isprintable() else "?" for c in excerpt)))


def _describe(trouble: Exception) -> str:
    if isinstance(trouble, orjson.JSONDecodeError):
        return "not a JSON object on one line"
    if isinstance(trouble, KeyError):
        return f"no known {trouble.args[0]!r} in the record"
    return str(trouble) or type(trouble).__name__


def _take_start(part: JournalPart, record: Mapping[str, Any], keys: Keys) -> None:
    if part.n_bytes or part.n_lines:
        raise ValueError("a start record that is not the first line")
    if record["run_id"] != part.run_id:
        raise ValueError("a start record of another run")
    if whole(record["resume_step"]) is None or record["resume_step"] < 0:
        raise ValueError("resume_step is not a step")
    check_types(record, START_TYPES)
    part.start = dict(record)
    part.last_time = real(record.get("time"))


def _take_metrics(part: JournalPart, record: Mapping[str, Any], keys: Keys) -> None:
    step, run, values = _step_of(record), part.run, record["values"]
    part.metrics += [
        (run, keys[name], step, value if type(value) is float else number(value)) for name, value in values.items()
    ]
    saw_logged_step(part, step)
    saw(part, record, step)
    if "loss_nats" in values:
        part.train_loss_nats = number(values["loss_nats"])
    if "tokens_per_s" in values:
        part.tokens_per_s = number(values["tokens_per_s"])


def _take_layers(part: JournalPart, record: Mapping[str, Any], keys: Keys) -> None:
    step, rows = _step_of(record), []
    for name, values in record["values"].items():
        if not isinstance(values, list) or len(values) > MOST_LAYERS:
            raise ValueError(f"{name[:40]!r} is not a list of one number a layer")
        key = keys[name]
        rows += [(part.run, key, step, layer, number(value)) for layer, value in enumerate(values)]
    part.layers += rows
    saw_logged_step(part, step)
    saw(part, record, step)


def _take_evaluation(part: JournalPart, record: Mapping[str, Any], keys: Keys) -> None:
    step, values = _step_of(record), record["values"]
    row: dict[str, Any] = {"run": part.run}
    row |= {"split": _text_of(record.get("split", "validation")), "step": step, "attempt": part.attempt}
    row |= {"n_tokens": whole(record.get("tokens")), "n_tokens_evaluated": whole(record.get("n_tokens"))}
    row |= {name: number(values[name]) if name in values else None for name in ("loss_nats", "bits_per_byte")}
    row |= {name: record.get(name) is True for name in ("final", "annealed")}
    part.evaluations.append({**row, "time": real(record.get("time"))})
    saw(part, record, step)


def _take_checkpoint(part: JournalPart, record: Mapping[str, Any], keys: Keys) -> None:
    step = _step_of(record)
    row: dict[str, Any] = {"run": part.run, "step": step, "path": words(record["path"])}
    row["n_tokens"] = whole(record.get("tokens"))
    row |= {"bytes": whole(record.get("bytes")), "attempt": part.attempt, "time": real(record.get("time"))}
    part.checkpoints.append(row)
    saw(part, record, step)


def _take_heartbeat(part: JournalPart, record: Mapping[str, Any], keys: Keys) -> None:
    saw(part, record, _step_of(record))


def _take_end(part: JournalPart, record: Mapping[str, Any], keys: Keys) -> None:
    if not is_outcome(record["outcome"]):
        raise ValueError(f"{str(record['outcome'])[:40]!r} is not an outcome")
    check_types(record, END_TYPES)
    step = _step_of(record)
    part.end = dict(record)
    saw(part, record, step)


START_TYPES: Mapping[str, type] = {"job": dict, "code": dict, "environment": dict, "token": str, "resume_tokens": int}
END_TYPES: Mapping[str, type] = {"reason": str, "error": str}


def check_types(record: Mapping[str, Any], types: Mapping[str, type]) -> None:
    """Raise ValueError for a value of the wrong type; what is not there, or null, is no fault."""
    for name, kind in types.items():
        if record.get(name) is not None and not isinstance(record[name], kind):
            raise ValueError(f"{name} is {str(record[name])[:40]!r}")


READERS: dict[str, Callable[[JournalPart, Mapping[str, Any], Keys], None]] = {
    "start": _take_start,
    "metrics": _take_metrics,
    "layers": _take_layers,
    "evaluation": _take_evaluation,
    "checkpoint": _take_checkpoint,
    "heartbeat": _take_heartbeat,
    "end": _take_end,
}


def saw(part: JournalPart, record: Mapping[str, Any], step: int) -> None:
    """Remember the newest step and the time of the newest record; called for every record, so it takes short ways."""
    if part.first_step is None:
        part.first_step = step
    if part.last_step is None or step >= part.last_step:
        tokens = record.get("tokens")
        part.last_step = step
        part.last_tokens = tokens if type(tokens) is int and 0 <= tokens < LARGEST_WHOLE else None
    time = record.get("time")
    if type(time) is float or (time := real(time)) is not None:
        part.last_time = time


def saw_logged_step(part: JournalPart, step: int) -> None:
    """Remember whether steps ascend, so that the database need not look for rows that it has already."""
    if part.first_logged_step is None:
        part.first_logged_step = step
    if part.newest_logged_step is not None and step <= part.newest_logged_step:
        part.is_ascending = False
    else:
        part.newest_logged_step = step


def _step_of(record: Mapping[str, Any]) -> int:
    step = record["step"]
    if type(step) is not int or not 0 <= step < LARGEST_WHOLE:
        raise ValueError("step is not a whole number from 0 on")
    tokens, at = record.get("tokens"), record.get("time")
    if tokens is not None and (type(tokens) is not int or not 0 <= tokens < LARGEST_WHOLE):
        raise ValueError("tokens is not a whole number from 0 on")
    if at is not None and (not isinstance(at, int | float) or isinstance(at, bool)):
        raise ValueError("time is not a number")
    return step


def number(value: Any) -> float | None:
    """Read a number of a journal: NaN becomes None, infinities stay."""
    if type(value) is float:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str) or value not in NON_FINITE:
        raise ValueError(f"{str(value)[:40]!r} is not a number")
    return None if value == "nan" else NON_FINITE[value]


def _text_of(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= LONGEST_NAME:
        raise ValueError(f"{str(value)[:40]!r} is not a name")
    return value
