"""Verbs for whole experiments: experiment ls, rename, archive, rm, tidy. No heavy import at the top."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scalewright.fitting.words import counted
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.report.tables import print_rows

if TYPE_CHECKING:
    from scalewright.db.engine import Database
    from scalewright.db.experiments import Contents
    from scalewright.orchestrator.study import Study

NAME = Annotated[str, typer.Argument(help="The name of an experiment in this folder's database.")]
YES = Annotated[bool, typer.Option("--yes", help="Do it; without it, only what would go is printed.")]
JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def _here() -> "tuple[Study, Database]":
    from scalewright.db.engine import open_database
    from scalewright.orchestrator.study import Study

    study = Study.at()
    return study, open_database(study.database, create=False)


def ls(
    archived: Annotated[bool, typer.Option("--all", help="Archived ones too.")] = False,
    as_json: JSON = False,
) -> None:
    """List experiments with their runs and fits. Example: scalewright experiment ls"""
    from scalewright.db.experiments import experiments_table

    print_rows(experiments_table(_here()[1], archived=archived), as_json=as_json, empty="no experiment yet")


def rename(old: NAME, new: Annotated[str, typer.Argument(help="The new name.")]) -> None:
    """Rename an experiment; change `experiment:` in its YAML too. Example: scalewright experiment rename first pilot"""
    from scalewright.db.experiments import rename_experiment
    from scalewright.orchestrator.config.section import read_name

    try:
        read_name(new)
    except ValueError as error:
        raise UserError(f"{new}: {error}") from None
    study, database = _here()
    rename_experiment(database, old, new)
    _keep_renamed(study, old, new)
    print(f"{old} is now {new}; write `experiment: {new}` in its YAML, or the next plan makes {old} anew")


def archive(name: NAME) -> None:
    """Leave an experiment out of lists; `rename` brings it back. Example: scalewright experiment archive pilot"""
    from scalewright.db.experiments import ARCHIVE, rename_experiment

    study, database = _here()
    rename_experiment(database, name, f"{ARCHIVE}{name}")
    _keep_renamed(study, name, f"{ARCHIVE}{name}")
    print(f"{name} is now {ARCHIVE}{name}: its runs stay, lists leave it out")


def _keep_renamed(study: "Study", old: str, new: str) -> None:
    from scalewright.orchestrator.sync.kept import rename_kept

    rename_kept(study, old, new)


def rm(
    name: NAME,
    files: Annotated[bool, typer.Option("--files", help="Also the runs that it alone contains, with folders.")] = False,
    yes: YES = False,
) -> None:
    """Remove an experiment; runs shared with others stay. Example: scalewright experiment rm pilot --files --yes"""
    from scalewright.db.experiments import contents_of, remove_experiment
    from scalewright.orchestrator.sync.kept import forget_kept

    study, database = _here()
    found = contents_of(database, name)
    if found.in_a_job:
        raise UserError(f"{name}: {len(found.in_a_job)} of its runs are in a job; first: scalewright cancel {name}")
    going = found.own if files else [one for one in found.own if not study.run_dir(one).exists()]
    print(bill(study, found, going))
    if not yes:
        print(f"nothing was removed; do it with: scalewright experiment rm {name}{' --files' * files} --yes")
        return
    remove_experiment(database, name, going)
    forget_kept(study, name)
    for run_id in going:
        shutil.rmtree(study.run_dir(run_id), ignore_errors=True)
    print(f"{name}: removed")


def bill(study: "Study", found: "Contents", going: list[str]) -> str:
    """Say what goes and what stays."""
    n_bytes = sum(_folder_bytes(study.run_dir(run_id)) for run_id in going)
    stays = len(found.own) - len(going)
    return (
        f"goes: the experiment, {counted(found.n_fits, 'stored fit')}, {counted(len(going), 'run')} "
        f"({n_bytes / 2**20:.1f} MiB of folders); "
        f"stays: {counted(len(found.shared), 'run')} shared with other experiments, "
        f"{counted(stays, 'run')} with folders"
    )


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.exists() else 0


def tidy(yes: YES = False) -> None:
    """Drop planned runs that no YAML contains any more and that never started. Example: scalewright experiment tidy"""
    from scalewright.db.experiments import drop_runs, leftover_runs

    study, database = _here()
    left = [run_id for run_id in leftover_runs(database) if not study.run_dir(run_id).exists()]
    if not yes or not left:
        then = "; drop them with: scalewright experiment tidy --yes" if left else ""
        print(f"{len(left)} planned runs belong to no plan any more{then}")
        return
    drop_runs(database, left)
    print(f"{len(left)} planned runs dropped", file=sys.stderr)
