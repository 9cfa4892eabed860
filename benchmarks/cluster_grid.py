"""The demo's grid on a SLURM cluster that misbehaves, against the local executor, bit for bit.

    python benchmarks/cluster_grid.py [--local STUDY]

Starts the cluster of the tests on this machine (3 nodes), submits experiments.yaml, preempts a node, loses another
without a signal and requeues a job while runs are in flight, waits until nothing is left, and compares the final
losses with those of the same grid trained by the local executor: in STUDY, or in a fresh one. About 12 minutes of 2
cores.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "slurm"), str(ROOT)]

from cluster import Cluster, running_cluster, why_not  # noqa: E402

POLL_S = 5.0
TEMPER_S = 30.0  # between two disturbances
RESOURCES = "\nresources: { profiles: { default: { mem: 1200M, time: 30min, pack: 6 } } }\ncheckpoint_every: 2s\n"


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "scalewright", *words]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def scalewright(folder: Path, *words: str) -> str:
    """Run a command in a study; return what it printed on both streams."""
    done = subprocess.run(command(*words), cwd=folder, capture_output=True, text=True, check=False, env=environment())
    return (done.stdout + done.stderr).strip()


def new_study(folder: Path, extra: str = "") -> Path:
    folder.mkdir()
    (folder / "experiments.yaml").write_text((ROOT / "experiments.yaml").read_text() + extra)
    return folder


def say(text: str, began: float) -> None:
    print(f"{time.monotonic() - began:5.0f} s  {text}", flush=True)


def states(study: Path) -> dict[str, int]:
    """Return how many runs are in each state, after a look at what happened."""
    read = subprocess.run(
        command("status", "--json"), cwd=study, capture_output=True, text=True, check=True, env=environment()
    )
    return dict(json.loads(read.stdout)["states"])


def wait_until_drained(study: Path, began: float, *, submit: tuple[str, ...]) -> None:
    """Look now and then; submit again when nothing is in flight and something is left to do."""
    told: dict[str, int] = {}
    while True:
        now = states(study)
        if now != told:
            say(str(now), began)
            told = now
        if set(now) <= {"completed", "diverged"}:
            return
        if not set(now) & {"queued", "running", "claimed"}:
            say(scalewright(study, "submit", *submit).splitlines()[0], began)
        time.sleep(POLL_S)


def disturb(cluster: Cluster, began: float) -> None:
    """Preempt a node, lose another one without a signal, requeue a job."""
    time.sleep(TEMPER_S)
    say("preempt n2", began)
    cluster.run("sbatch", "-p", "high", "-w", "n2", "-o", "/dev/null", "--wrap", "sleep 5")
    time.sleep(TEMPER_S)
    say("lose n3, then requeue a job that runs", began)
    cluster.lose_node("n3")
    time.sleep(5)
    cluster.bring_back("n3")
    running = cluster.say("squeue", "-h", "-t", "R", "-o", "%i").split()
    cluster.run("scontrol", "requeue", running[0])


def results(study: Path) -> dict[str, dict[str, Any]]:
    return {path.parent.name: json.loads(path.read_text()) for path in (study / "runs").glob("*/DONE.json")}


def attempts(study: Path) -> list[int]:
    return sorted(len(list(path.glob("journal.a*"))) for path in (study / "runs").iterdir())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--local", type=Path, help="a study in which the grid was trained by the local executor")
    local = arguments.parse_args().local
    missing = why_not()
    if missing:
        sys.exit(f"no cluster can be started here: {missing}")
    with tempfile.TemporaryDirectory() as scratch:
        began = time.monotonic()
        if local is None:
            local = new_study(Path(scratch) / "here")
            say(scalewright(local, "submit", "--executor", "local").splitlines()[0], began)
            wait_until_drained(local, began, submit=("--executor", "local"))
        study = new_study(Path(scratch) / "there", RESOURCES)
        with running_cluster(accounting=True, n_cpus=1, memory_mb=3000) as cluster:
            os.environ["SLURM_CONF"] = str(cluster.conf)
            say(scalewright(study, "submit", "--executor", "slurm").splitlines()[0], began)
            disturb(cluster, began)
            wait_until_drained(study, began, submit=("--executor", "slurm"))
            ends = cluster.say("sacct", "-D", "-X", "-n", "-o", "state%30").split()
        here, there = results(local), results(study)
        equal = sum(one["loss_nats"] == there[name]["loss_nats"] for name, one in here.items() if name in there)
        print(f"runs done: {len(here)} locally, {len(there)} on the cluster; equal to the last bit: {equal}")
        print(f"attempts a run on the cluster: {attempts(study)}")
        print(f"jobs ended: { ({state: ends.count(state) for state in sorted(set(ends))}) }")


if __name__ == "__main__":
    main()
