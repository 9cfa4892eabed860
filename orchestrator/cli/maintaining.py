"""Verbs that look after the database: db upgrade, backup, check, stats, rebuild, copy. No heavy import at the top."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from scalewright.fitting.words import counted
from scalewright.orchestrator.report.tables import print_rows

JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
PLACE = Annotated[str | None, typer.Argument(help="A YAML file, a folder, a SQLite file or a URL; by default here.")]


def _database_of(place: str | None) -> str:
    from scalewright.orchestrator.cli.selection import study_of_database

    return study_of_database(place).database


def upgrade(place: PLACE = None) -> None:
    """Bring an older database to this version, after a copy. Example: scalewright db upgrade"""
    from scalewright.db.upgrade import upgrade as upgrade_database

    receipt = upgrade_database(_database_of(place))
    if receipt.backup:
        print(f"copy of the old state: {receipt.backup}", file=sys.stderr)
    done = "is" if receipt.before == receipt.after else f"was {receipt.before} and is now"
    print(f"schema {done} {receipt.after}")


def backup(
    place: PLACE = None,
    to: Annotated[Path | None, typer.Option(help="The file to make; by default one beside the database.")] = None,
) -> None:
    """Copy a SQLite database, also while it is used. Example: scalewright db backup --to monday.sqlite"""
    from scalewright.db.engine import open_database
    from scalewright.db.upgrade import backup as copy_file

    print(copy_file(open_database(_database_of(place), read_only=True), to))


def check(place: PLACE = None, as_json: JSON = False) -> None:
    """Check for damage; exit code 1 where there is some. Example: scalewright db check"""
    from scalewright.db.engine import open_database
    from scalewright.db.maintenance import check as check_database

    findings = check_database(open_database(_database_of(place), create=False))
    rows = [{"": "ok" if one.is_good else "BAD", "what": one.what, "found": one.found} for one in findings]
    print_rows([{**row, "good": row.pop("") == "ok"} for row in rows] if as_json else rows, as_json=as_json)
    if not all(one.is_good for one in findings):
        raise typer.Exit(1)


def stats(place: PLACE = None, as_json: JSON = False) -> None:
    """Count rows and bytes by table. Example: scalewright db stats"""
    from scalewright.db.engine import open_database
    from scalewright.db.maintenance import stats as count

    print_rows(count(open_database(_database_of(place), create=False)), as_json=as_json)


def rebuild(place: PLACE = None) -> None:
    """Read every journal anew; a lost database comes back, but for stored fits. Example: scalewright db rebuild"""
    from scalewright.orchestrator.cli.selection import study_of_database
    from scalewright.orchestrator.errors import Partial
    from scalewright.orchestrator.sync.sync import rebuild as rebuild_study

    receipt = rebuild_study(study_of_database(place), wait_s=60.0)
    if receipt.skipped:
        raise Partial(f"{receipt.skipped}; nothing was rebuilt")
    print(receipt.sentence())
    if receipt.was_lost:
        print("plans, imports, tags, notes and cancels came back from kept/; stored fits did not", file=sys.stderr)
    for line in receipt.not_restored:
        print(f"scalewright: not restored: {line}", file=sys.stderr)


def copy(
    target: Annotated[str, typer.Argument(help="An empty database: a URL or a new file.")],
    place: Annotated[str | None, typer.Option("--of", help="What to copy; by default this folder's database.")] = None,
) -> None:
    """Copy everything into another database, of either kind. Example: scalewright db copy postgresql:///runs"""
    from scalewright.db.copying import copy_database
    from scalewright.db.engine import open_database

    source = open_database(_database_of(place), read_only=True)
    counts = copy_database(source, open_database(target))
    print(f"{counted(sum(counts.values()), 'row')} copied from {source.name}")
