"""How much orchestration costs: thousands of runs that train nothing, planned, submitted, drained and synced.

    python benchmarks/orchestration.py [--runs 5000] [--pack 25] [--executor slurm|local] [--step-s 0.025]

A run is four steps of `--step-s` seconds that write a journal, checkpoints and a result. With `slurm` the cluster of
the tests is started on this machine (3 nodes of 4 processors claimed, whatever it has). Prints one JSON object;
nothing is left behind.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "slurm"), str(ROOT / "tests" / "orchestrator" / "jobs"), str(ROOT)]

from cluster import running_cluster, why_not  # noqa: E402
from fleet import Fleet  # noqa: E402

from scalewright.orchestrator.cli.actions import read_progress  # noqa: E402
from scalewright.orchestrator.config.resources import Profile, Resources  # noqa: E402
from scalewright.orchestrator.jobs.observe import refresh  # noqa: E402
from scalewright.orchestrator.jobs.records import read_chunks  # noqa: E402
from scalewright.orchestrator.report.progress import measure  # noqa: E402
from scalewright.orchestrator.runs.run_files import read_run  # noqa: E402

POLL_S = 2.0


class Clock:
    """Wall seconds of named parts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, action: Any) -> Any:
        began = time.perf_counter()
        result = action()
        self.seconds[name] = round(time.perf_counter() - began, 3)
        return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--pack", type=int, default=25)
    parser.add_argument("--executor", choices=("slurm", "local"), default="slurm" if why_not() is None else "local")
    parser.add_argument("--step-s", type=float, default=0.025)
    given = parser.parse_args()
    settings = {"MaxArraySize": "101"}
    site = running_cluster(accounting=True, settings=settings) if given.executor == "slurm" else nullcontext()
    with site as cluster, tempfile.TemporaryDirectory() as folder:
        if cluster is not None:
            os.environ["SLURM_CONF"] = str(cluster.conf)
        print(json.dumps(measure_all(Path(folder), given), indent=2))


def measure_all(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    clock = Clock()
    fleet = clock("plan and record", lambda: Fleet(folder, given.runs))
    if given.step_s != 0.025:
        for index in range(given.runs):
            fleet.behave(index, step_s=given.step_s)
    profile = Profile(pack=given.pack, mem="100M")
    order = {"executor": given.executor, "resources": Resources(profiles={"default": profile})}
    began = time.perf_counter()
    receipt = clock("submit", lambda: fleet.submit(**order))
    looks = wait_until_drained(fleet, given.runs)
    drained_s = time.perf_counter() - began
    clock("one more sync, nothing new", lambda: refresh(fleet.study))
    clock("status", lambda: measure(read_progress(fleet.study, "x")))
    attempts = [len(read_run(fleet.dir(index)).attempts) for index in range(given.runs)]
    done = sum((fleet.dir(index) / "DONE.json").exists() for index in range(given.runs))
    chunks = read_chunks(fleet.study.jobs_dir, closed=True)
    return {
        "runs": given.runs,
        "jobs": receipt.n_jobs,
        "submissions": len(chunks),
        "seconds": clock.seconds,
        "submitted and drained": round(drained_s, 1),
        "payload seconds of a run": 4 * given.step_s,
        "seconds a run, all told": round(drained_s / given.runs, 4),
        "slowest look while draining": round(max(looks, default=0.0), 2),
        "done": done,
        "lost": given.runs - done,
        "run more than once": sum(n > 1 for n in attempts),
        "states": measure(read_progress(fleet.study, "x")).states,
        "load at the end": os.getloadavg()[0],
    }


def wait_until_drained(fleet: Fleet, n_runs: int) -> list[float]:
    """Look until every run is over; return how long each look took."""
    looks: list[float] = []
    while True:
        began = time.perf_counter()
        states = fleet.states()
        looks.append(time.perf_counter() - began)
        n_done = sum(state == "completed" for state in states)
        print(f"{n_done} of {n_runs}, looked for {looks[-1]:.2f} s", file=sys.stderr)
        if n_done == n_runs:
            return looks
        time.sleep(POLL_S)


if __name__ == "__main__":
    main()
