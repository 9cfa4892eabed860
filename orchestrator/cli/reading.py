"""Verbs that read the database, and what comes into it from outside. No heavy import at the top."""

import io
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scalewright.fitting.words import counted
from scalewright.orchestrator.files import printable
from scalewright.orchestrator.report.tables import print_json, print_rows
from scalewright.orchestrator.talk import say

if TYPE_CHECKING:
    import pandas as pd

JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
CSV = Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")]
PLACE = Annotated[
    str | None,
    typer.Argument(help="A YAML file or an experiment's name; by default experiments.yaml, or the only experiment."),
]
RUN = Annotated[str, typer.Argument(help="The id of a run (4 or more leading characters).")]
RUNS = Annotated[list[str], typer.Argument(help="Ids of runs (4 or more leading characters).")]
OF = Annotated[str | None, typer.Option("--of", help="The YAML file of the study; by default the one of this folder.")]

RUN_COLUMNS = ("run_id", "experiment", "label", "size", "budget", "state", "n_params", "n_tokens", "lr_peak")
RESULT_COLUMNS = ("seed", "loss_nats")
LIMIT = 1000
TIME_LIMIT_S = 60.0
SYNC_WAIT_S = 60.0


def sync(place: PLACE = None, as_json: JSON = False) -> None:
    """Read what jobs wrote into the database. Example: scalewright sync experiments.yaml"""
    from scalewright.orchestrator.cli.selection import find_study
    from scalewright.orchestrator.errors import Partial
    from scalewright.orchestrator.jobs.observe import look_at_jobs
    from scalewright.orchestrator.sync.sync import sync as sync_study

    study = find_study([place] if place else [])[0]
    receipt = sync_study(study, wait_s=SYNC_WAIT_S)
    if receipt.notice:
        say(receipt.notice)
    if receipt.skipped:
        raise Partial(f"{receipt.skipped}; nothing was read")
    for line in look_at_jobs(study):
        say(f"scalewright: {line}")
    print_json(receipt.summary()) if as_json else print(receipt.sentence())


def runs(
    place: PLACE = None,
    method: Annotated[str | None, typer.Option(help="Only runs of this method.")] = None,
    state: Annotated[str | None, typer.Option(help="Only runs in this state: {states}.")] = None,
    tagged: Annotated[str | None, typer.Option("--tag", help="Only runs with this tag.")] = None,
    where: Annotated[str | None, typer.Option(help="A condition: 'n_params < 1e8 and tokens > 1e9'.")] = None,
    sort: Annotated[str, typer.Option(help="Columns to sort by, comma-separated; -COLUMN descends.")] = "",
    columns: Annotated[str, typer.Option(help="Columns to show, comma-separated, or all.")] = "",
    limit: Annotated[int | None, typer.Option(help="Rows at most.", min=1)] = None,
    everything: Annotated[bool, typer.Option("--all", help="Runs of all experiments of this folder.")] = False,
    as_json: JSON = False,
    as_csv: CSV = False,
    parquet: Annotated[Path | None, typer.Option(help="Write a Parquet file instead.")] = None,
) -> None:
    """List runs. Example: scalewright runs experiments.yaml --where "n_params < 1e8 and loss < 3" --sort loss_nats"""
    from scalewright.db import frames
    from scalewright.orchestrator.cli.selection import meant, open_study
    from scalewright.orchestrator.sync.table_files import write_table

    _one_format(as_json, as_csv, parquet is not None)
    reading = open_study(None if everything else meant(place))
    if method is not None:
        frames.check_method(reading.database, method)
    frame = frames.runs(
        reading.database,
        reading.experiment,
        where=where,
        method=method,
        state=state,
        tag=tagged,
        sort=_split(sort),
        limit=limit,
    )
    frame = pick(frame, columns, everything=as_json or as_csv or parquet is not None)
    if parquet is None:
        show_frame(frame, as_json=as_json, as_csv=as_csv, empty="no run fits")
        return
    write_table(frame, parquet.with_suffix(".parquet"))
    print(f"{parquet.with_suffix('.parquet')}: {counted(len(frame), 'run')}")


def _one_format(*asked: bool) -> None:
    if sum(asked) > 1:
        raise typer.BadParameter("--json, --csv and --parquet exclude each other")


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def pick(frame: "pd.DataFrame", columns: str, *, everything: bool) -> "pd.DataFrame":
    """Keep the columns asked for; by default those that a person wants first, or all for a program."""
    from scalewright.db.where import column_name

    if columns == "all" or (everything and not columns):
        return frame
    wanted = [column_name(name, list(frame.columns)) for name in _split(columns)]
    return frame[wanted or [name for name in (*RUN_COLUMNS, *RESULT_COLUMNS) if name in frame.columns]]


def show(run: RUN, of: OF = None, metric: str = "loss_nats", as_json: JSON = False) -> None:
    """Show one run: spec, attempts, evaluations, curve. Example: scalewright show 3f2a"""
    from scalewright.db.frames import resolve_run
    from scalewright.orchestrator.cli.selection import open_study
    from scalewright.orchestrator.report.run_page import describe, page_lines

    database = open_study(of).database
    page = describe(database, resolve_run(database, run))
    if as_json:
        print_json(page)
        return
    for line in page_lines(database, page, metric):
        print(printable(line))


def curve(run: RUNS, metric: str = "loss_nats", of: OF = None, as_json: JSON = False, as_csv: CSV = False) -> None:
    """Plot a metric of runs, or print its values. Example: scalewright curve 3f2a 91bc --metric grad_norm --csv"""
    from scalewright.db.frames import resolve_run
    from scalewright.orchestrator.cli.selection import open_study
    from scalewright.orchestrator.report.run_page import curve_plot, metric_values

    _one_format(as_json, as_csv)
    database = open_study(of).database
    ids = [resolve_run(database, prefix) for prefix in run]
    if as_json or as_csv:
        show_frame(metric_values(database, ids, metric), as_json=as_json, as_csv=as_csv)
    else:
        print(f"{metric}\n{curve_plot(database, ids, metric)}")


def diff(first: RUN, second: RUN, of: OF = None, as_json: JSON = False) -> None:
    """Show what differs between two runs, in spec and result. Example: scalewright diff 3f2a 91bc"""
    from scalewright.db.frames import resolve_run
    from scalewright.orchestrator.cli.selection import open_study
    from scalewright.orchestrator.report.run_page import differences

    database = open_study(of).database
    rows = differences(database, resolve_run(database, first), resolve_run(database, second))
    show_rows(rows, as_json=as_json, empty="nothing differs")


def query(
    sql: Annotated[str, typer.Argument(help="One SELECT; :name stands for a parameter.")],
    param: Annotated[list[str] | None, typer.Option("--param", "-p", help="name=value")] = None,
    limit: Annotated[int, typer.Option(help="Rows at most; it is said when there are more.", min=1)] = LIMIT,
    time_limit: Annotated[float, typer.Option(help="Seconds at most.", min=0.01)] = TIME_LIMIT_S,
    of: OF = None,
    as_json: JSON = False,
    as_csv: CSV = False,
) -> None:
    """Ask the database in SQL, reading only. Example: scalewright query "select * from final_losses" --csv"""
    from scalewright.db.engine import open_database
    from scalewright.db.query import parse_parameters, run_query
    from scalewright.orchestrator.cli.selection import open_study

    _one_format(as_json, as_csv)
    name = open_study(of).study.database
    database, parameters = open_database(name, read_only=True), parse_parameters(param or [])
    answer = run_query(database, sql, parameters, limit=limit, limit_s=time_limit)
    if as_csv and not answer.rows:
        print(",".join(answer.columns))
        return
    show_rows(answer.records(), as_json=as_json, as_csv=as_csv, empty="no rows")
    if answer.is_cut:
        print(f"only the first {counted(limit, 'row')} shown; more with --limit", file=sys.stderr)


def export(
    target: Annotated[Path, typer.Argument(help="The file: {tables}, or .sqlite for everything.")],
    place: Annotated[str | None, typer.Option("--of", help="A YAML file or an experiment's name.")] = None,
) -> None:
    """Write final losses to a file, or copy the whole database. Example: scalewright export points.csv"""
    from scalewright.orchestrator.cli.selection import meant, open_study
    from scalewright.orchestrator.sync.export_tables import export as export_to

    reading = open_study(meant(place))
    print(export_to(reading.database, reading.experiment, target))


def import_(
    file: Annotated[Path, typer.Argument(help="CSV, Parquet or JSONL with one row a point.")],
    name: Annotated[str, typer.Option("--as", help="The experiment that the points become.")],
    columns: Annotated[
        str, typer.Option(help='Where the file has another name for one of {points}: n_params="Model Size",loss=final')
    ] = "",
    units: Annotated[str, typer.Option(help="Units of amounts without one: n_params=B,n_tokens=M.")] = "",
    settings: Annotated[str, typer.Option(help="Other columns that say how a run was trained: warmup,beta2.")] = "",
    tokens_from_flops: Annotated[
        str | None,
        typer.Option(
            help="The rule by which tokens follow from FLOPs, {token_rules}: n_tokens = flops / (6 n_params)."
        ),
    ] = None,
    of: OF = None,
    as_json: JSON = False,
) -> None:
    """Take anyone's points into the database. Example: scalewright import points.csv --as paper --columns loss=final"""
    from scalewright.orchestrator.cli.selection import find_study
    from scalewright.orchestrator.sync.import_points import Asked, import_file, parse_columns, parse_units

    study = find_study([of] if of else [])[0]
    kept = tuple(filter(None, (word.strip() for word in settings.split(","))))
    receipt = import_file(study, file, name, Asked(parse_columns(columns), parse_units(units), kept, tokens_from_flops))
    print_json(receipt.summary()) if as_json else print(printable(receipt.sentence()))
    for line in receipt.notes:
        print(printable(f"note: {line}"), file=sys.stderr)
    receipt.raise_if_refused()


def tag(
    run: RUN,
    words: Annotated[list[str], typer.Argument(help="The tags.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take the tags off.")] = False,
    of: OF = None,
) -> None:
    """Put tags on a run, or take them off. Example: scalewright tag 3f2a best"""
    from scalewright.db.frames import resolve_run, tags
    from scalewright.db.store import add_tag, remove_tag
    from scalewright.orchestrator.cli.selection import open_study
    from scalewright.orchestrator.sync.kept import Word, keep_word

    reading = open_study(of, fresh=False)
    database = reading.database
    run_id = resolve_run(database, run)
    for word in words:
        remove_tag(database, run_id, word) if remove else add_tag(database, run_id, word)
        keep_word(reading.study, Word("untag" if remove else "tag", run_id, word, time.time()))
    print(printable(f"{run_id}: {', '.join(tags(database, run_id)) or 'no tags'}"))


def note(run: RUN, text: str, of: OF = None) -> None:
    """Write a note about a run. Example: scalewright note 3f2a "loss spike at step 900: bad node" """
    from scalewright.db.frames import resolve_run
    from scalewright.db.store import add_note
    from scalewright.orchestrator.cli.selection import open_study
    from scalewright.orchestrator.sync.kept import Word, keep_word

    reading = open_study(of, fresh=False)
    run_id = resolve_run(reading.database, run)
    add_note(reading.database, run_id, text)
    keep_word(reading.study, Word("note", run_id, text, time.time()))
    print(f"{run_id}: noted")


def show_frame(frame: "pd.DataFrame", *, as_json: bool = False, as_csv: bool = False, empty: str = "no rows") -> None:
    """Print a frame as a table, JSON or CSV."""
    from scalewright.db.typed import records

    if as_csv:
        print_csv(frame.to_csv(index=False))
    else:
        show_rows(records(frame), as_json=as_json, empty=empty)


def show_rows(
    rows: Sequence[Mapping[str, Any]], *, as_json: bool = False, as_csv: bool = False, empty: str = "no rows"
) -> None:
    """Print rows as a table, JSON or CSV."""
    if as_csv:
        import csv

        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerows([list(rows[0]), *(list(row.values()) for row in rows)] if rows else [])
        print_csv(text.getvalue())
        return
    print_rows(rows, as_json=as_json, empty=empty)


def print_csv(text: str) -> None:
    """Print CSV as it is into a file or another program; a terminal gets no control characters."""
    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
