"""A study with planned runs of the debug payload, and what a person does with it. For tests of orchestration."""

import json
import time

from scalewright.db import store
from scalewright.db.engine import open_database
from scalewright.orchestrator.cli.selection import Target
from scalewright.orchestrator.files import require, write_json
from scalewright.orchestrator.jobs.executors.here import is_alive
from scalewright.orchestrator.jobs.observe import refresh
from scalewright.orchestrator.jobs.records import Started, read_chunks
from scalewright.orchestrator.jobs.submit import Order, submit
from scalewright.orchestrator.plan.runs import PlannedRun
from scalewright.orchestrator.runs.spec import RunSpec
from scalewright.orchestrator.study import Study

MODEL = {"method": "pre-ln", "gate": "none", "width": 8, "depth": 1, "heads": 1, "vocab_size": 256, "context": 8}


def planned_run(seed, **planned):
    training = {"n_tokens": 4096, "batch_sequences": 128, "context": 8, "seed": seed, "precision": "fp32"}
    spec = RunSpec(
        MODEL, {"fingerprint": "f"}, training | {"optimizer": {"name": "adamw"}, "schedule": {"name": "cosine"}}
    )
    numbers = {"wall_s": 1.0 + seed, "flops_total": 1e9} | planned
    names = ("pre-ln", "pre-ln")
    return PlannedRun(spec.run_id, spec, {"data_dir": "/nowhere"}, numbers, *names, "s", "4k", "g", False, "default")


def record(database, runs):
    rows = [store.PlannedRun(run.run_id, run.identity, run.label, run.planned) for run in runs]
    store.record_experiment(database, "x", "text", rows)


class Fleet:
    """A study with planned debug runs, and the verbs on it."""

    def __init__(self, root, n_runs):
        self.study = Study(root, str(root / "runs.sqlite"))
        self.database = open_database(self.study.database)
        self.runs = [planned_run(seed) for seed in range(n_runs)]
        record(self.database, self.runs)

    @property
    def ids(self):
        return [run.run_id for run in self.runs]

    def dir(self, index):
        return self.study.run_dir(self.ids[index])

    def behave(self, index, **behaviour):
        write_json(self.dir(index) / "debug.json", behaviour)

    def submit(self, **options):
        refresh(self.study)
        return submit(self.study, self.database, self.runs, Order(payload="debug", **options))

    def states(self):
        refresh(self.study)
        with self.database.read() as connection:
            rows = connection.exec_driver_sql("SELECT run_id, state, state_reason FROM runs").all()
        found = {run_id: (state, reason) for run_id, state, reason in rows}
        return [found[run_id][0] for run_id in self.ids]

    def reason(self, index):
        with self.database.read() as connection:
            query = f"SELECT state_reason FROM runs WHERE run_id = '{self.ids[index]}'"
            return connection.exec_driver_sql(query).scalar()

    def target(self, *indices):
        return Target(self.study, self.database, "x", [self.ids[i] for i in indices] if indices else self.ids)

    def wait(self, condition, what, seconds=180.0):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}: {self.states()}"
            time.sleep(0.05)

    def wait_until_over(self):
        self.wait(lambda: not self.jobs_alive(), "the jobs to end")
        return self.states()

    def jobs_alive(self):
        chunks = list(read_chunks(self.study.jobs_dir, closed=True))
        return [pack for one in chunks for pack in one.packs if is_alive(one, self.study.jobs_dir, pack)]

    def job_process(self, pack="p0000"):
        record = next(iter(self.study.jobs_dir.glob(f"*/{pack}/started.json")))
        return require(record, Started).process.pid

    def losses(self, index):
        """Every logged loss by step, and how often each step was logged after the run's rewinds."""
        lines = []
        for path in sorted(self.dir(index).glob("journal.a*.jsonl")):
            records = [json.loads(line) for line in path.read_text().splitlines()]
            lines = [line for line in lines if line[0] <= records[0]["resume_step"]]
            lines += [(r["step"], r["values"]["loss_nats"]) for r in records if r["type"] == "metrics"]
        return lines
