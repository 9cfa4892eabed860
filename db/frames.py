"""What people and figures read: each function is one question and returns a sorted, documented DataFrame.

Losses are nats a token, times are seconds (points in time since 1970, UTC), and NaN means not measured.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Select,
    Text,
    column,
    func,
    literal,
    select,
    table,
    text,
)

from scalewright.db import schema
from scalewright.db.engine import Database
from scalewright.db.errors import DbError
from scalewright.db.run_states import ENDED, STATES
from scalewright.db.typed import KINDS, records, to_frame
from scalewright.db.where import column_name, parse_where

NUMBERS_AND_TEXTS = {
    name: "text" if isinstance(kind, Text) else "number"
    for name, kind in KINDS.items()
    if not isinstance(kind, Boolean)
}
SPECIFIC = ("label", "size", "budget", "run_group", "holdout")


def runs(
    db: Database,
    experiment: str | None = None,
    *,
    where: str | None = None,
    method: str | None = None,
    state: str | None = None,
    tag: str | None = None,
    sort: Sequence[str] = (),
    columns: Sequence[str] = (),
    limit: int | None = None,
    with_spec: bool = False,
) -> pd.DataFrame:
    """List runs, one row each, planned and measured numbers side by side (the view all_runs).

    Names of a run (experiment, label, size, budget, run_group, holdout) are those that the experiment gives it; without
    one, those of the newest experiment that contains it. With an experiment: its runs as planned now. where: a
    condition such as "n_params < 1e8 and tokens > 1e9". sort: columns, a leading `-` for descending. columns: only
    these. with_spec adds `spec`, the JSON of everything that determines the result. Raises DbError for unknown names.
    """
    if state is not None and state not in STATES:
        raise DbError(f"no state {state!r} (states: {', '.join(STATES)})")
    with db.read() as connection:
        names = column_names(connection, "all_runs")
        view = table("all_runs", *[column(name) for name in names])
        query: Select[Any] = select(view)
        query = as_named_last(query, view) if experiment is None else in_experiment(connection, query, view, experiment)
        names = [*names, "experiment", *SPECIFIC]
        if with_spec:
            stored = schema.runs.alias("stored")
            query = query.add_columns(stored.c.spec).join(stored, stored.c.run_id == view.c.run_id)
            names = [*names, "spec"]
        inner = query.subquery("chosen")
        shown: list[Any] = [inner.c[column_name(name, names)] for name in columns] or [inner]
        usual = text("method, n_params NULLS LAST, n_tokens_planned NULLS LAST, run_id")
        chosen = select(*shown).select_from(inner).order_by(*order_of(sort, names), usual).limit(limit)
        for condition in conditions(names, where, {"method": method, "state": state}, tag):
            chosen = chosen.where(condition)
        return to_frame(connection.execute(chosen))


def conditions(
    names: Sequence[str], where: str | None, exact: Mapping[str, str | None], tag: str | None
) -> Iterator[ColumnElement[bool]]:
    """Yield what a run must satisfy."""
    if where:
        yield parse_where(where, names, NUMBERS_AND_TEXTS)
    for name, value in exact.items():
        if value is not None:
            yield column(name, Text) == value
    if tag is not None:
        tagged = select(schema.runs.c.run_id).join(schema.tags).where(schema.tags.c.tag == tag)
        yield column("run_id").in_(tagged)


def check_method(db: Database, method: str) -> None:
    """Raise DbError with the methods that there are where no run has this one, as a typing error has it."""
    with db.read() as connection:
        known = sorted(connection.execute(select(schema.runs.c.method).distinct()).scalars())
    if known and method not in known:
        raise DbError(f"no run of method {method!r} (methods here: {', '.join(known)})")


def in_experiment(connection: Connection, query: Select[Any], view: Any, experiment: str) -> Select[Any]:
    """Keep the runs that the experiment contains now, with the names that it gives them."""
    number, revision = experiment_numbers(connection, experiment)
    links, stored = schema.experiment_runs, schema.runs.alias("linked")
    given = [literal(experiment).label("experiment"), *(links.c[name] for name in SPECIFIC)]
    mine = (links.c.experiment_id == number) & (links.c.last_revision_id == revision)
    joined = (
        query.add_columns(*given)
        .join(stored, stored.c.run_id == view.c.run_id)
        .join(links, links.c.run == stored.c.run)
    )
    return joined.where(mine)


def as_named_last(query: Select[Any], view: Any) -> Select[Any]:
    """Keep every run, with the names that the newest experiment which contains it now gives it."""
    links, known, stored = schema.experiment_runs, schema.experiments, schema.runs.alias("linked")
    current = links.join(
        known, (known.c.experiment_id == links.c.experiment_id) & (known.c.revision_id == links.c.last_revision_id)
    )
    newest = select(links.c.run, func.max(links.c.experiment_id).label("experiment_id")).select_from(current)
    last = newest.group_by(links.c.run).subquery("newest")
    return (
        query.add_columns(known.c.name.label("experiment"), *(links.c[name] for name in SPECIFIC))
        .join(stored, stored.c.run_id == view.c.run_id)
        .outerjoin(last, last.c.run == stored.c.run)
        .outerjoin(links, (links.c.run == last.c.run) & (links.c.experiment_id == last.c.experiment_id))
        .outerjoin(known, known.c.experiment_id == links.c.experiment_id)
    )


def order_of(sort: Sequence[str], names: Sequence[str]) -> list[Any]:
    """Return the ORDER BY of column names, `-name` descending, NULL last; raises DbError for an unknown one."""
    order = []
    for key in sort:
        chosen: ColumnElement[Any] = column(column_name(key.removeprefix("-"), names))
        order.append(chosen.desc().nulls_last() if key.startswith("-") else chosen.asc().nulls_last())
    return order


def experiment_numbers(connection: Connection, name: str) -> tuple[int, int | None]:
    """Return (experiment_id, current revision_id); raises DbError with the names that exist."""
    experiments = schema.experiments
    rows = {row.name: row for row in connection.execute(select(experiments))}
    if name not in rows:
        known = ", ".join(sorted(rows)) or "none yet; plan one with: scalewright plan experiments.yaml"
        raise DbError(f"no experiment {name!r} (experiments: {known})")
    return rows[name].experiment_id, rows[name].revision_id


def experiments(db: Database) -> pd.DataFrame:
    """List experiments: name, created_at, n_runs as planned now, n_revisions; sorted by name."""
    query = """
        SELECT e.name, e.created_at,
               (SELECT count(*) FROM experiment_runs x WHERE x.experiment_id = e.experiment_id
                AND x.last_revision_id = e.revision_id) AS n_runs,
               (SELECT count(*) FROM experiment_revisions v WHERE v.experiment_id = e.experiment_id) AS n_revisions
        FROM experiments e ORDER BY e.name"""
    return read(db, query)


def final_losses(db: Database, experiment: str | None = None) -> pd.DataFrame:
    """Return what laws are fitted to: one row a run of the experiment as planned now, sorted by label, size and tokens.

    run_id, experiment, source (run or import), method, gate, label, init, size, budget, run_group, width, depth, heads,
    n_params (without embedding and head), n_params_total, n_params_head, n_tokens (measured), unique_tokens (of the
    data, None where not known), flops (measured tokens times flops_per_token), flops_6n, loss_nats (NaN until the run
    has ended), bits_per_byte, seed, lr_peak, batch_tokens, precision, annealed, state, diverged, holdout, tokens_per_s,
    wall_s, train_wall_s, device, threads.
    """
    query = "SELECT * FROM final_losses WHERE experiment = :experiment OR :experiment IS NULL"
    return read_experiment(db, query, experiment, ("n_params", "n_tokens", "seed"))


def progress(db: Database, experiment: str | None = None) -> pd.DataFrame:
    """Return how far each run of the experiment is: run_id, experiment, label, size, budget, n_params, state,
    state_reason, step, n_steps_planned, n_tokens, n_tokens_planned, train_loss_nats, validation_loss_nats,
    tokens_per_s, left_s, n_attempts, last_seen_at, wall_s, wall_s_planned; sorted by label, parameters and tokens
    planned.
    """
    query = "SELECT * FROM progress WHERE experiment = :experiment OR :experiment IS NULL"
    return read_experiment(db, query, experiment, ("n_params", "n_tokens_planned"))


def read_experiment(db: Database, query: str, experiment: str | None, numbers: Sequence[str]) -> pd.DataFrame:
    """Read rows in the order of label, some numbers and run id: the same order in every database, missing ones last."""
    by_bytes = 'COLLATE "C"' if db.dialect == "postgresql" else "COLLATE BINARY"
    order = [f"label {by_bytes}", *(f"{name} NULLS LAST" for name in numbers), f"run_id {by_bytes}"]
    typed = query.replace(":experiment IS NULL", "CAST(:experiment AS TEXT) IS NULL")
    with db.read() as connection:
        if experiment is not None:
            experiment_numbers(connection, experiment)
        ordered = text(f"{typed} ORDER BY {', '.join(order)}")
        return to_frame(connection.execute(ordered, {"experiment": experiment}))


def claims(db: Database) -> list[tuple[str, str, str]]:
    """Return (run_id, state, submission_id) of every run without a result that was ever submitted; raw tuples."""
    runs = schema.runs.c
    query = select(runs.run_id, runs.state, runs.submission_id).order_by(runs.run_id)
    unfinished = runs.state.not_in(ENDED) & runs.submission_id.is_not(None)
    with db.read() as connection:
        return [(row.run_id, row.state, row.submission_id) for row in connection.execute(query.where(unfinished))]


def strays(db: Database) -> list[tuple[str, str]]:
    """Return (run_id, state) of every run without a result that no known submission has; raw tuples."""
    runs = schema.runs.c
    query = select(runs.run_id, runs.state).order_by(runs.run_id)
    unfinished = runs.state.not_in(ENDED) & runs.submission_id.is_(None)
    with db.read() as connection:
        return [(row.run_id, row.state) for row in connection.execute(query.where(unfinished))]


def curves(db: Database, run_ids: Iterable[str], metric: str = "loss_nats") -> pd.DataFrame:
    """Return one metric of several runs: run_id, step, n_tokens, value; sorted by run_id and step."""
    wanted = list(dict.fromkeys(run_ids))
    with db.read() as connection:
        key = metric_key(connection, metric)
        numbers = {row.run: row for row in connection.execute(_run_batches(wanted))}
        metrics = schema.metrics.c
        query = select(metrics.run, metrics.step, metrics.value).where(
            metrics.run.in_(list(numbers)), metrics.key == key
        )
        found = [tuple(row) for row in connection.execute(query)]
    return curve_frame(found, numbers)


def layer_values(db: Database, run_ids: Iterable[str], metrics: Iterable[str]) -> pd.DataFrame:
    """Return what each layer did: run_id, metric, step, n_tokens, layer (from 0), value; sorted in this order.

    Names that no layer has are left out.
    """
    keys, values, runs_ = schema.metric_keys.c, schema.layer_metrics.c, schema.runs.c
    query = (
        select(
            runs_.run_id, keys.name, values.step,
            (values.step * runs_.batch_tokens).label("n_tokens"), values.layer, values.value,
        )
        .join_from(schema.layer_metrics, schema.metric_keys, keys.key == values.key)
        .join(schema.runs, runs_.run == values.run)
        .where(runs_.run_id.in_(list(run_ids)), keys.name.in_(list(metrics)))
        .order_by(runs_.run_id, keys.name, values.step, values.layer)
    )  # fmt: skip
    with db.read() as connection:
        return to_frame(connection.execute(query)).rename(columns={"name": "metric"})


def _run_batches(run_ids: Sequence[str]) -> Select[Any]:
    runs_ = schema.runs.c
    return select(runs_.run, runs_.run_id, runs_.batch_tokens).where(runs_.run_id.in_(run_ids))


def curve_frame(rows: Sequence[tuple[Any, ...]], numbers: dict[int, Any]) -> pd.DataFrame:
    """Put (run, step, value) into columns, with ids and tokens."""
    run, step, value = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    ids = np.array([numbers[n].run_id for n in sorted(numbers)], dtype=object)
    batches = np.array([numbers[n].batch_tokens or np.nan for n in sorted(numbers)], dtype=np.float64)
    place = np.searchsorted(np.array(sorted(numbers), dtype=np.float64), run)
    frame = pd.DataFrame(
        {"run_id": ids[place], "step": step.astype(np.int64), "n_tokens": step * batches[place], "value": value}
    )
    if not frame["n_tokens"].isna().any():
        frame["n_tokens"] = frame["n_tokens"].astype(np.int64)
    return frame.sort_values(["run_id", "step"], ignore_index=True)


def metric_key(connection: Connection, metric: str) -> int:
    """Return the number of a metric; raises DbError with the names that exist."""
    keys = schema.metric_keys.c
    known: dict[str, int] = dict(connection.execute(select(keys.name, keys.key)).all())
    if metric in known:
        return known[metric]
    near = difflib.get_close_matches(metric, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"metrics: {', '.join(sorted(known)) or 'none yet'}"
    raise DbError(f"no metric {metric!r} was logged; {hint}")


def evaluations(db: Database, run_ids: Iterable[str] | None = None, *, experiment: str | None = None) -> pd.DataFrame:
    """Return losses on fixed sets: run_id, split, step, n_tokens, loss_nats, bits_per_byte, n_tokens_evaluated, final,
    annealed, time; sorted by run_id, split and step. Of some runs, of an experiment as planned now, or of all.
    """
    e, r = schema.evaluations, schema.runs
    query = select(r.c.run_id, *[c for c in e.c if c.name != "run"]).join(r, r.c.run == e.c.run)
    return read_chosen(db, query, run_ids, experiment, "run_id, split, step")


def attempts(db: Database, run_ids: Iterable[str] | None = None, *, experiment: str | None = None) -> pd.DataFrame:
    """Return the attempts of runs, with code and environment: run_id, attempt, host, pid, cluster, job_id, started_at,
    ended_at, outcome, reason, error, resume_step, cut_step, last_step, wall_s, code_commit, device, threads, ...;
    sorted by run_id and attempt.
    """
    a, r = schema.attempts, schema.runs
    codes, environments = schema.codes, schema.environments
    described = [codes.c.code_commit, codes.c.dirty, environments.c.device, environments.c.threads, environments.c.cpu]
    own = [c for c in a.c if c.name not in ("run", "code_id", "environment_id")]
    query = select(r.c.run_id, *own, *described).select_from(
        a.join(r).outerjoin(codes, codes.c.code_id == a.c.code_id).outerjoin(environments)
    )
    return read_chosen(db, query, run_ids, experiment, "run_id, attempt")


def read_chosen(
    db: Database, query: Select[Any], run_ids: Iterable[str] | None, experiment: str | None, order: str
) -> pd.DataFrame:
    """Read a query over runs, limited to some runs or to an experiment as planned now."""
    r, links = schema.runs, schema.experiment_runs
    with db.read() as connection:
        if run_ids is not None:
            query = query.where(r.c.run_id.in_(list(run_ids)))
        if experiment is not None:
            number, revision = experiment_numbers(connection, experiment)
            mine = (links.c.experiment_id == number) & (links.c.last_revision_id == revision)
            query = query.where(r.c.run.in_(select(links.c.run).where(mine)))
        return to_frame(connection.execute(query.order_by(text(order))))


def fits(db: Database, experiment: str | None = None) -> pd.DataFrame:
    """Return stored fits, newest first: fit_id, experiment, label, law, objective, objective_value, n_points, record
    (JSON), created_at."""
    query = select(schema.fits).order_by(schema.fits.c.created_at.desc(), schema.fits.c.fit_id)
    if experiment is not None:
        query = query.where(schema.fits.c.experiment == experiment)
    with db.read() as connection:
        return to_frame(connection.execute(query))


def column_names(connection: Connection, view: str) -> list[str]:
    """List the columns of a view or table."""
    return list(connection.execute(text(f"SELECT * FROM {view} LIMIT 0")).keys())


def read(db: Database, query: str, parameters: dict[str, Any] | None = None) -> pd.DataFrame:
    """Return what a query gives as a frame."""
    with db.read() as connection:
        return to_frame(connection.execute(text(query), parameters or {}))


def run_record(db: Database, run_id: str) -> dict[str, Any]:
    """Return one run as `runs` lists it, with its spec; raises DbError for an unknown id."""
    found = records(runs(db, where=f"run_id == {run_id!r}", with_spec=True))
    if not found:
        raise DbError(f"{run_id}: no such run")
    return found[0]


def memberships(db: Database, run_id: str) -> pd.DataFrame:
    """Return the experiments that contain a run now: experiment, label, size, budget, holdout; sorted by name."""
    query = """
        SELECT e.name AS experiment, x.label, x.size, x.budget, x.holdout FROM experiment_runs x
        JOIN experiments e ON e.experiment_id = x.experiment_id AND e.revision_id = x.last_revision_id
        JOIN runs r ON r.run = x.run WHERE r.run_id = :run_id ORDER BY e.name"""
    return read(db, query, {"run_id": run_id})


def events(db: Database, run_id: str | None = None) -> pd.DataFrame:
    """Return changes of state, oldest first: run_id, time, state_before, state, reason, evidence (JSON)."""
    query = "SELECT run_id, time, state_before, state, reason, evidence FROM events"
    chosen = " WHERE run_id = :run_id" if run_id else ""
    return read(db, f"{query}{chosen} ORDER BY event_id", {"run_id": run_id} if run_id else None)


def tags(db: Database, run_id: str) -> list[str]:
    """Return the words that people put on a run, sorted."""
    with db.read() as connection:
        query = select(schema.tags.c.tag).join(schema.runs).where(schema.runs.c.run_id == run_id)
        return sorted(connection.execute(query).scalars())


def notes(db: Database, run_id: str) -> pd.DataFrame:
    """Return what people wrote about a run, oldest first: time, text."""
    query = (
        "SELECT n.time, n.text FROM notes n JOIN runs r ON r.run = n.run WHERE r.run_id = :run_id ORDER BY n.note_id"
    )
    return read(db, query, {"run_id": run_id})


def resolve_run(db: Database, prefix: str) -> str:
    """Return the id of the one run that begins with `prefix`, 4 or more hex digits.

    Raises DbError, with candidates, where none or several do.
    """
    wanted = prefix.strip().lower()
    if not 4 <= len(wanted) <= 16 or not all(digit in "0123456789abcdef" for digit in wanted):
        raise DbError(f"{prefix[:40]!r} is not the id of a run (4 to 16 hex digits; list them with: scalewright runs)")
    ids = schema.runs.c.run_id
    with db.read() as connection:
        found = list(connection.execute(select(ids).where(ids.startswith(wanted)).order_by(ids).limit(6)).scalars())
        if len(found) == 1:
            return str(found[0])
        known = list(connection.execute(select(ids).order_by(ids).limit(10_000)).scalars())
    if not found:
        near = difflib.get_close_matches(wanted, [run_id[: len(wanted)] for run_id in known], n=3, cutoff=0.7)
        hint = f"; did you mean {', '.join(dict.fromkeys(near))}?" if near else ""
        raise DbError(f"no run begins with {prefix}{hint}")
    more = ", ..." if len(found) > 5 else ""
    raise DbError(f"{prefix} is the beginning of several runs: {', '.join(found[:5])}{more}")
