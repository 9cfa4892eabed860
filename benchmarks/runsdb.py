"""The runs database beside the trackers that people use: logging, syncing, reading, size and memory, in one run.

Usage: python benchmarks/runsdb.py [--full]
--full also syncs 30 million rows. Peers that do not import are reported as absent; SCALEWRIGHT_PEER_PYTHON names a
Python that has more of them. SCALEWRIGHT_BENCH_POSTGRESQL is the URL of an empty PostgreSQL database to measure too.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scalewright.db import frames, store
from scalewright.db.content import content_hash
from scalewright.db.engine import open_database
from scalewright.orchestrator.runs.journal import Journal
from scalewright.orchestrator.runs.spec import RunSpec
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.sync.sync import sync, sync_database

PEER_PROGRAM = Path(__file__).parent / "peers" / "runsdb_peers.py"
PEER_STEPS = {"csvlogger": 10_000, "tensorboard": 10_000, "mlflow": 30, "mlflow-batch": 1000}
PLANNED = {"n_params_non_embedding": 50_000, "n_params_total": 90_000, "flops_per_token": 3e5, "n_steps": 1000}
START = {"token": "t", "resume_step": 0, "resume_tokens": 0, "job": {}, "code": {}, "environment": {"device": "cpu"}}
FINAL = ("run_id", "state", "n_params", "n_tokens", "loss_nats", "bits_per_byte", "spec")
METRICS = [
    *("loss_nats", "lr", "grad_norm", "tokens_per_s", "step_s"),
    *("z_loss", "update_norm", "logit_max", "gate_mean", "alpha"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="also sync 30 million rows")
    options = parser.parse_args()
    parts = (bench_logging, bench_peers, bench_writers, bench_sync, bench_reads, bench_plan, bench_watch)
    with tempfile.TemporaryDirectory(prefix="runsdb-") as folder:
        place = Path(folder)
        for part in parts:
            part(place / part.__name__)
            shutil.rmtree(place / part.__name__, ignore_errors=True)
        if options.full:
            bench_memory(place / "memory")


def say(what, value, unit, target=""):
    """Print one figure beside its target."""
    print(f"{what:<58} {value:>14,.4g} {unit:<10} {target}", flush=True)


def spec_of(seed, method="gpt+"):
    model = {"method": method, "gate": "none", "init": "gpt2", "width": 64, "depth": 4, "heads": 4}
    training = {"n_tokens": 1_024_000, "batch_sequences": 8, "context": 128, "seed": seed, "precision": "fp32"}
    recipe = {"optimizer": {"name": "adamw", "lr_peak": 0.01}, "schedule": {"name": "cosine"}}
    return RunSpec(model | {"vocab_size": 256, "context": 128}, {"fingerprint": "f"}, training | recipe)


def run_dir_of(root, seed):
    spec = spec_of(seed)
    run_dir = root / "runs" / spec.run_id
    run_dir.mkdir(parents=True)
    content = {"format": 1, "run_id": spec.run_id, "identity": spec.to_dict(), "settings": {}, "planned": PLANNED}
    (run_dir / "spec.json").write_text(json.dumps(content))
    return run_dir


def write_run(root, seed, n_steps, n_metrics, *, is_done=True):
    """Write what a job of `n_steps` steps writes; making it durable would take longer than all that is measured."""
    os.fsync = lambda descriptor: None
    run_dir = run_dir_of(root, seed)
    names = METRICS[:n_metrics]
    journal = Journal.open(run_dir, START | {"run_id": run_dir.name})
    for step in range(1, n_steps + 1):
        journal.metrics(step, step * 1024, {name: 1.234567 / (step + i) for i, name in enumerate(names)})
    if is_done:
        values = {"loss_nats": 2.0 + seed / 1e6, "bits_per_byte": 2.9}
        journal.evaluation(n_steps, n_steps * 1024, values, n_tokens=4096, final=True, annealed=True)
        done = {"outcome": "completed", "attempt": 1, "step": n_steps, "n_tokens": n_steps * 1024, **values}
        (run_dir / "DONE.json").write_text(json.dumps(done))
        journal.end("completed", n_steps, n_steps * 1024)
    journal.close()
    return run_dir


def bench_logging(root):
    journal = Journal.open(run_dir_of(root, 0), START)
    values, costs = {name: 0.123456789 * i for i, name in enumerate(METRICS)}, []
    for step in range(50_000):
        before = time.perf_counter_ns()
        journal.metrics(step, step * 1024, values)
        costs.append(time.perf_counter_ns() - before)
    journal.close()
    costs.sort()
    say("a step of 10 scalars, seen by the training loop, p50", costs[len(costs) // 2] / 1e3, "us", "target < 5")
    say(
        "a step of 10 scalars, seen by the training loop, p99", costs[len(costs) * 99 // 100] / 1e3, "us", "target < 20"
    )


def bench_peers(root):
    """Measure each peer with the first Python that has it."""
    pythons = [sys.executable, os.environ.get("SCALEWRIGHT_PEER_PYTHON", sys.executable)]
    for peer, n_steps in PEER_STEPS.items():
        for number, python in enumerate(dict.fromkeys(pythons)):
            folder = root / f"{peer}-{number}"
            folder.mkdir(parents=True)
            done = subprocess.run(
                [python, PEER_PROGRAM, peer, folder, str(n_steps)], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                found = json.loads(done.stdout.splitlines()[-1])
                for name, unit in (("p50_us", "us"), ("p99_us", "us"), ("points_per_s", "points/s")):
                    say(f"  {peer}: {name}", found[name], unit)
                say(f"  {peer}: bytes a point", found["bytes_per_point"], "B")
                break
        else:
            print(f"  {peer}: absent ({(done.stderr.strip().splitlines() or ['?'])[-1][:90]})", flush=True)


def forked(work):
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    return child


def bench_writers(root):
    n_writers, n_steps = 8, 10_000
    began = time.perf_counter()
    children = [forked(lambda i=i: write_run(root, i, n_steps, 10)) for i in range(n_writers)]
    assert {os.waitpid(child, 0)[1] for child in children} == {0}
    say("8 writers at once", n_writers * n_steps * 10 / (time.perf_counter() - began), "points/s")
    receipt = sync(Study.at(root, database=str(root / "runs.sqlite")))
    say("  rows lost of 800,000", n_writers * n_steps * 10 - receipt.n_rows, "rows", "target 0")


def bench_sync(root):
    """One long run and a hundred short ones, into each kind of database, in a child whose CPU is counted."""
    shapes = {"1 run of 100,000 steps": (1, 100_000), "100 runs of 1,000 steps": (100, 1000)}
    for name, (n_runs, n_steps) in shapes.items():
        folder = root / name.replace(" ", "-")
        for seed in range(n_runs):
            write_run(folder, seed, n_steps, 10)
        n_rows = n_runs * n_steps * 10
        wall_s, cpu_s = timed(lambda folder=folder: sync(Study.at(folder, database=str(folder / "runs.sqlite"))))
        say(
            f"sync into SQLite, {name}", n_rows / wall_s, "rows/s", f"target 300,000 (CPU alone: {n_rows / cpu_s:,.0f})"
        )
        size = (folder / "runs.sqlite").stat().st_size
        say("  size on disk, everything counted", size / n_rows, "B/row", "target <= 26")
        url = os.environ.get("SCALEWRIGHT_BENCH_POSTGRESQL")
        if url is None:
            print("  PostgreSQL: absent (SCALEWRIGHT_BENCH_POSTGRESQL is not set)")
            continue
        wipe(url)
        wall_s, cpu_s = timed(lambda folder=folder, url=url: sync(Study.at(folder, database=url)))
        say(f"sync into PostgreSQL, {name}", n_rows / wall_s, "rows/s", "target 200,000")


def wipe(url):
    from sqlalchemy import text

    from scalewright.db.engine import connect

    with connect(url).write() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))


def timed(work):
    """Return (wall seconds, CPU seconds) of `work`."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def bench_reads(root):
    """10,000 runs, 50 of them with full curves of 1,000 steps of 3 metrics, the others with 20 steps."""
    n_runs, n_curves = 10_000, 50
    for seed in range(n_runs):
        write_run(root, seed, 1000 if seed < n_curves else 20, 3)
    study = Study.at(root, database=str(root / "runs.sqlite"))
    database = open_database(study.database)
    store.record_experiment(database, "bench", "name: bench", planned_runs(n_runs))
    wall_s, _ = timed(lambda: sync(study))
    print(f"  (10,000 runs synced in {wall_s:.1f} s)")
    ids = [spec_of(seed).run_id for seed in range(n_curves)]
    asked = {
        "final loss of 10,000 runs with their specs": (
            lambda: frames.runs(database, columns=FINAL, with_spec=True),
            0.15,
        ),
        "everything about 10,000 runs, 51 columns": (lambda: frames.runs(database, with_spec=True), 0.5),
        "final losses of an experiment of 10,000 runs": (lambda: frames.final_losses(database, "bench"), 0.15),
        "50 curves of 1,000 steps among 10,000 runs": (lambda: frames.curves(database, ids), 0.1),
        "status of 10,000 runs, syncing first": (lambda: status(study, database), 0.5),
        "one run by the beginning of its id": (lambda: frames.resolve_run(database, ids[0][:8]), 0.1),
    }
    for what, (ask, target_s) in asked.items():
        ask()
        wall_s, cpu_s = zip(*[timed(ask) for _ in range(7)], strict=True)
        say(what, statistics.median(wall_s), "s", f"target < {target_s} (CPU alone: {statistics.median(cpu_s):.3f})")
    wall_s, _ = timed(lambda: content_hash(database))
    print(f"  (content hash of 10,000 runs: {wall_s:.1f} s)")
    print(
        f"  (memory after all that: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB, target < 400)"
    )


def status(study, database):
    sync_database(database, study.runs_dir)
    return frames.progress(database, "bench")


def planned_runs(n):
    specs = (spec_of(seed) for seed in range(n))
    return [store.PlannedRun(spec.run_id, spec.to_dict(), "gpt+", PLANNED, size="55k", budget="20x") for spec in specs]


def bench_plan(root):
    root.mkdir()
    database = open_database(root / "runs.sqlite")
    runs = planned_runs(10_000)
    for what in ("record a new grid of 10,000 points", "record it again, all known"):
        wall_s, _ = timed(lambda: store.record_experiment(database, "bench", "name: bench", runs))
        say(what, wall_s, "s", "target < 5 (with planning)")
    claimed, _ = timed(lambda: store.claim_runs(database, [r.run_id for r in runs], "s", executor="x", snapshot=None))
    say("claim 10,000 runs", claimed, "s")


def bench_watch(root, n_writers=64, step_s=0.01, tick_s=0.5, n_ticks=12):
    """64 writers at 10 ms a step; a sync every half second, as `status --watch` does."""

    def write(seed):
        journal = Journal.open(run_dir_of(root, seed), START | {"run_id": spec_of(seed).run_id})
        for step in range(1, int((n_ticks + 2) * tick_s / step_s)):
            journal.metrics(step, step * 1024, dict.fromkeys(METRICS[:3], 1.0 / step))
            time.sleep(step_s)

    children = [forked(lambda i=i: write(i)) for i in range(n_writers)]
    database = open_database(root.parent / "watch.sqlite")
    ages, shown, cpu, began = [], None, time.process_time(), time.monotonic()
    for tick in range(1, n_ticks + 1):
        time.sleep(max(0.0, began + tick * tick_s - time.monotonic()))
        if shown is not None:  # just before it is shown anew, what is shown is oldest
            ages.append(time.time() - shown["last_seen_at"].min())
        sync_database(database, root / "runs")
        shown = frames.runs(database)
    busy = (time.process_time() - cpu) / (time.monotonic() - began)
    for child in children:
        os.waitpid(child, 0)
    say("64 writers watched: oldest that the newest point gets", statistics.median(ages[2:]), "s", "target < 1")
    say("64 writers watched: share of a core", 100 * busy, "%", "target < 15")


def bench_memory(root, n_runs=300, n_steps=10_000):
    """Sync 30 million rows in a child process and ask for its peak memory."""
    for seed in range(n_runs):
        write_run(root, seed, n_steps, 10)
    program = (
        "import resource, sys, time; from scalewright.orchestrator.study import Study;"
        "from scalewright.orchestrator.sync.sync import sync;"
        "t = time.time(); r = sync(Study.at(sys.argv[1], database=sys.argv[1] + '/runs.sqlite'));"
        "print(r.n_rows, time.time() - t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", program, root], capture_output=True, text=True, check=True)
    n_rows, seconds, megabytes = map(float, done.stdout.split())
    say(f"sync of {n_rows:,.0f} rows", n_rows / seconds, "rows/s", "target 300,000")
    say("  peak memory", megabytes, "MB", "target < 400")
    say("  size on disk", (root / "runs.sqlite").stat().st_size / n_rows, "B/row", "target <= 26")


if __name__ == "__main__":
    main()
