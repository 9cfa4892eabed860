"""Verbs that start, watch and stop jobs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

JSON = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
YAML_FILE = Annotated[Path, typer.Argument(help="The YAML file of the experiment.")]
TARGETS = Annotated[list[str] | None, typer.Argument(help="A YAML file, an experiment's name or ids of runs.")]
MAX_GPU_HOURS = Annotated[float | None, typer.Option(help="Stop where the runs to do take more than this.", min=0)]
DEFAULT_YAML = Path("experiments.yaml")


def submit(
    file: YAML_FILE = DEFAULT_YAML,
    executor: Annotated[str | None, typer.Option(help="{executors}; the file's by default.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the bill and the jobs, and start nothing.")] = False,
    max_parallel: Annotated[int | None, typer.Option(help="Jobs at once, at most.", min=1)] = None,
    max_gpu_hours: MAX_GPU_HOURS = None,
    payload: Annotated[str, typer.Option(hidden=True)] = "train",
) -> None:
    """Start every run that is not done and not running. Example: scalewright submit experiments.yaml"""
    from scalewright.orchestrator.cli.actions import submit_file

    lines = submit_file(
        file,
        executor=executor,
        dry_run=dry_run,
        max_parallel=max_parallel,
        payload=payload,
        max_gpu_hours=max_gpu_hours,
    )
    for line in lines:
        print(line)


def status(
    targets: TARGETS = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it live until nothing runs any more.")] = False,
    each: Annotated[bool, typer.Option("--runs", help="One row a run instead of one a method and size.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="All experiments of this folder.")] = False,
    as_json: JSON = False,
) -> None:
    """Show where runs are and how far. Example: scalewright status experiments.yaml --watch"""
    from scalewright.orchestrator.cli.actions import show_status

    show_status([] if everything else meant_targets(targets), watch=watch, each=each, as_json=as_json)


def logs(
    run: Annotated[str, typer.Argument(help="The id of a run (4 or more leading characters).")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing until the run's job is over.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many lines of the past.", min=0)] = 40,
) -> None:
    """Print what the job of a run printed. Example: scalewright logs 3f2a -f"""
    from scalewright.orchestrator.cli.logs import print_logs

    print_logs(run, follow=follow, n_lines=lines)


def cancel(
    targets: TARGETS = None,
    now: Annotated[bool, typer.Option("--now", help="Kill the jobs instead of waiting for a checkpoint.")] = False,
) -> None:
    """Stop runs for good, until `resume`. Example: scalewright cancel experiments.yaml"""
    from scalewright.orchestrator.cli.actions import stop_runs

    print(stop_runs(required(targets), "cancel", now=now))


def hold(targets: TARGETS = None) -> None:
    """Keep runs from starting, and stop those that run at a checkpoint. Example: scalewright hold 3f2a"""
    from scalewright.orchestrator.cli.actions import stop_runs

    print(stop_runs(required(targets), "hold"))


def release(targets: TARGETS = None) -> None:
    """Let held runs start again with the next submit. Example: scalewright release 3f2a"""
    from scalewright.orchestrator.cli.actions import take_back_runs

    print(take_back_runs(required(targets), ("held",)))


def resume(targets: TARGETS = None) -> None:
    """Let cancelled and held runs go on with the next submit. Example: scalewright resume experiments.yaml"""
    from scalewright.orchestrator.cli.actions import take_back_runs

    print(take_back_runs(required(targets), ("cancelled", "held")))


def retry(targets: TARGETS = None) -> None:
    """Give failed, unknown and cancelled runs another try. Example: scalewright retry 3f2a"""
    from scalewright.orchestrator.cli.actions import take_back_runs

    print(take_back_runs(required(targets), ("failed", "unknown", "cancelled")))


def required(targets: list[str] | None) -> list[str]:
    """Return the names given, or the experiment that is meant where none is; raises UserError where that is open."""
    from scalewright.orchestrator.cli.selection import meant_one

    return targets or [meant_one(None)]


def meant_targets(targets: list[str] | None) -> list[str]:
    """Return the names given, or the experiment that is meant; none at all means every run of this folder."""
    from scalewright.orchestrator.cli.selection import meant

    return targets or [name for name in [meant(None)] if name]


def doctor(
    as_json: JSON = False,
    probe: Annotated[bool, typer.Option("--probe", help="Also send one short job through the cluster.")] = False,
) -> None:
    """Check this machine and its cluster; each line says what to do. Example: scalewright doctor --probe"""
    from scalewright.orchestrator.jobs.doctor import examine, print_findings

    findings = examine(Path.cwd(), probe=probe)
    print_findings(findings, as_json=as_json)
    if any(finding.level == "bad" for finding in findings):
        raise typer.Exit(1)


def demo(file: YAML_FILE = DEFAULT_YAML) -> None:
    """From text to scaling laws on this machine: plan, train, fit, figures. Example: scalewright demo

    Without an experiments.yaml here, the demo's grid is written first.
    """
    from scalewright.orchestrator.cli.demo import run_demo
    from scalewright.orchestrator.config.starter import write_demo

    if file == DEFAULT_YAML and not file.exists():
        write_demo(file)
        print(f"{file}: the demo's grid", file=sys.stderr)
    sys.exit(run_demo(file))
