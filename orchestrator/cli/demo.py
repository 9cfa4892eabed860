"""The whole path on one machine: data, plan, jobs, progress, fits, figures, two tables and a page. Safe to repeat."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scalewright.fitting.words import counted
from scalewright.orchestrator.errors import Partial
from scalewright.orchestrator.study import Study

if TYPE_CHECKING:
    from scalewright.orchestrator.plan.bill import Plan

INTERRUPTED = 130


def run_demo(file: Path) -> int:
    """Run the experiment of `file` on this machine and report it; return the exit code.

    Ctrl-C asks the jobs to stop at a checkpoint; the same command goes on from there.
    """
    from scalewright.orchestrator.cli.actions import plan_now
    from scalewright.orchestrator.config.load import load_experiment

    began = time.monotonic()
    plan, study = plan_now(file)
    try:
        train(plan, study)
        while (then := plan_now(file)[0]).experiment.name != plan.experiment.name:  # the sweep has ended: the grid
            plan = then
            train(plan, study)
        if plan.experiment.name != load_experiment(file).name:
            raise Partial("the sweep is not over, and the grid waits for it: see `scalewright status --runs`")
    except KeyboardInterrupt:
        return pause(study)
    report(plan, study)
    print(f"{time.monotonic() - began:.0f} s in all", file=sys.stderr)
    return 0


def train(plan: "Plan", study: Study) -> None:
    """Record the plan, start its runs on this machine and follow them to their end."""
    from scalewright.orchestrator.cli.actions import describe, order_of, say_talk, submit_plan
    from scalewright.orchestrator.plan.make import record
    from scalewright.orchestrator.report.bill import print_plan

    record(plan, study)
    list(say_talk(study))
    print_plan(plan, study, None, as_json=False)
    order = order_of(plan, executor="local", max_parallel=None, payload="train")
    receipt = submit_plan(plan, study, order)
    print(describe(receipt, order.executor), file=sys.stderr)
    follow_to_the_end(study, plan.experiment.name)


def follow_to_the_end(study: Study, experiment: str) -> None:
    """Show progress until every run is over; raises Partial when some did not get their outcome."""
    from scalewright.orchestrator.cli.actions import read_progress
    from scalewright.orchestrator.jobs.observe import refresh
    from scalewright.orchestrator.report.progress import follow, headline

    progress = follow(
        lambda: read_progress(study, experiment), live=sys.stderr.isatty(), refresh=lambda: refresh(study)
    )
    print(headline(progress))
    if progress.n_done == 0:
        raise Partial("no run has a result: see `scalewright status --runs` and `scalewright logs RUN`")


def pause(study: Study) -> int:
    """Stop the jobs at a checkpoint, say one line."""
    from scalewright.orchestrator.jobs.executors.local import pause_jobs

    print("\nscalewright: stopping at a checkpoint ...", end=" ", file=sys.stderr, flush=True)
    n_jobs = pause_jobs(study)
    print(f"{counted(n_jobs, 'job')} stopped; nothing is lost, the same command goes on from here", file=sys.stderr)
    return INTERRUPTED


def report(plan: "Plan", study: Study) -> None:
    """Fit, draw and print what the runs say."""
    from scalewright.orchestrator.answers.fit import print_page
    from scalewright.orchestrator.report.page import report_experiment

    pairs = tuple((pair.method, pair.baseline) for pair in plan.experiment.compare)
    print_page(report_experiment(study, plan.experiment.name, compare=pairs))
