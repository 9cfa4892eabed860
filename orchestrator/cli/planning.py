"""Verbs that plan: init, plan, data prepare, schema, version."""

import sys
from pathlib import Path
from typing import Annotated

import typer

JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
YAML_FILE = Annotated[Path, typer.Argument(help="The YAML file of the experiment.")]
MAX_GPU_HOURS = Annotated[float | None, typer.Option(help="Stop where the runs to do take more than this.", min=0)]
DEFAULT_YAML = Path("experiments.yaml")


def schema() -> None:
    """Print the JSON schema of experiments.yaml, for editors. Example: scalewright schema > experiments.schema.json"""
    from scalewright.orchestrator.config.schema import experiment_schema
    from scalewright.orchestrator.report.tables import print_json

    print_json(experiment_schema())


def version() -> None:
    """Print the version. Example: scalewright version"""
    from importlib.metadata import version as installed

    print(installed("scalewright"))


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write experiments.yaml.")] = Path(),
    full: Annotated[bool, typer.Option("--full", help="Show every key with its default.")] = False,
) -> None:
    """Write a commented starter experiments.yaml. Example: scalewright init my-study"""
    from scalewright.orchestrator.config.starter import write_starter

    path = write_starter(folder, full=full)
    print(path)
    print(f"edit it, then: scalewright plan {path}", file=sys.stderr)


def plan(
    file: YAML_FILE = DEFAULT_YAML,
    as_json: JSON = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the bill and record nothing.")] = False,
    max_gpu_hours: MAX_GPU_HOURS = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Time a few steps of each shape whose speed is not known, for the bill.")
    ] = False,
) -> None:
    """Resolve the grid, print the bill and record the runs. Example: scalewright plan experiments.yaml"""
    from scalewright.orchestrator.cli.actions import plan_now
    from scalewright.orchestrator.plan.make import record
    from scalewright.orchestrator.report.bill import print_plan

    made, study = plan_now(file, timed=calibrate)
    made.check_limit(max_gpu_hours)
    receipt = None if dry_run else record(made, study)
    print_plan(made, study, receipt, as_json=as_json)


def prepare(
    file: YAML_FILE = DEFAULT_YAML,
    corpus: Annotated[list[Path] | None, typer.Option(help="Text, JSONL or folder, instead of a YAML.")] = None,
    tokenizer: Annotated[str, typer.Option(help="With --corpus: bytes, bpe:SIZE or a tokenizer.json.")] = "bytes",
    field: Annotated[str, typer.Option(help="With --corpus: the key of a JSON object's text.")] = "text",
    lossy_tokenizer: Annotated[
        bool,
        typer.Option("--lossy-tokenizer", help="With --corpus: ids may decode to another text."),
    ] = False,
    out: Annotated[Path, typer.Option(help="With --corpus: where the shards go, for data: {dir: OUT}.")] = Path("data"),
    as_json: JSON = False,
) -> None:
    """Make the token shards of an experiment or of files. Example: scalewright data prepare --corpus my.txt"""
    from scalewright.orchestrator.config.load import load_experiment
    from scalewright.orchestrator.data.prepare import prepare as prepare_files
    from scalewright.orchestrator.data.sources import what_was_skipped
    from scalewright.orchestrator.plan.make import prepare_data, skipped_files, study_of
    from scalewright.orchestrator.report.bill import print_data, show_documents

    if corpus:
        manifest = prepare_files(
            corpus, tokenizer, out, text_field=field, lossy_tokenizer=lossy_tokenizer, progress=show_documents
        )
        folder, skipped = out, what_was_skipped(corpus)
    else:
        experiment = load_experiment(file)
        manifest, folder = prepare_data(experiment, study_of(experiment), progress=show_documents)
        skipped = skipped_files(experiment)
    for line in skipped:
        print(f"scalewright: {line}", file=sys.stderr)
    print_data(manifest, folder, as_json=as_json)
