"""Real training on the cluster: requeued and thrown off a lost node, it ends with the bits of an undisturbed run."""

import json
import shutil

import pytest
from cluster import wait_until

from scalewright.orchestrator import cli
from scalewright.orchestrator.jobs.records import read_chunks, runs_in
from scalewright.orchestrator.runs.run_files import read_run
from scalewright.orchestrator.study import Study

pytestmark = pytest.mark.xdist_group("slurm")
PATIENCE_S = 300.0
OF_THE_CLOCK = ("tokens_per_s", "step_s", "epochs")  # measured now and then, whenever a stretch of steps happens to end
YAML = """
experiment: small
sizes:
  s: {width: 48, depth: 2, heads: 3}
budgets: [60k]
methods: [pre-ln, angpt]
batch: 2
context: 64
lr: 0.01
evaluation: {n_windows: 16, every: 20k tokens}
checkpoint_every: 1s
resources:
  profiles:
    one: {mem: 1500M, time: 30min, pack: 1, sbatch: {exclude: n1}}
    two: {mem: 3000M, time: 30min, pack: 1, devices: 2, setup: [export MASTER_ADDR=127.0.0.1]}
  rules: [{use: one}]
"""


def submit(folder, *options, yaml=YAML):
    (folder / "experiments.yaml").write_text(yaml)
    assert cli.run(["submit", str(folder / "experiments.yaml"), *options]) == 0
    return Study.at(folder / "experiments.yaml")


def run_dirs(study):
    return sorted(study.runs_dir.iterdir())


def states(study):
    from scalewright.orchestrator.cli.actions import read_progress
    from scalewright.orchestrator.jobs.observe import refresh

    refresh(study)
    return set(read_progress(study, "small")["state"])


def job_of(study, run_dir):
    for chunk in read_chunks(study.jobs_dir, closed=True):
        for pack in chunk.packs:
            if run_dir in runs_in(study.jobs_dir, chunk.submission_id, pack):
                return chunk.job_of(pack)
    raise AssertionError(f"no job has {run_dir}")


def has_checkpoint(run_dir):
    return any((run_dir / "ckpt").glob("step-*.pt"))


def curve(run_dir):
    """Every logged value by step, as the journals leave it after the rewinds of resumed attempts."""
    kept = []
    for path in sorted(run_dir.glob("journal.a*.jsonl")):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        kept = [one for one in kept if one[0] <= records[0]["resume_step"]]
        for record in records:
            if record["type"] in ("metrics", "evaluation"):
                values = {name: value for name, value in record["values"].items() if name not in OF_THE_CLOCK}
                kept += [(record["step"], name, value) for name, value in values.items()]
    return sorted(kept)


def test_disturbed_runs_on_the_cluster_equal_undisturbed_ones_here_bit_for_bit(cluster, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    undisturbed = submit(here)
    there.mkdir()
    shutil.copytree(here / "data", there / "data")
    study = submit(there, "--executor", "slurm")
    first, second = run_dirs(study)
    wait_until(lambda: has_checkpoint(first), PATIENCE_S, "a checkpoint of the first run")
    cluster.run("scontrol", "requeue", job_of(study, first))
    wait_until(lambda: len(read_run(first).attempts) == 2, PATIENCE_S, "the first run to come back")
    wait_until(lambda: has_checkpoint(second), PATIENCE_S, "a checkpoint of the second run")
    node = cluster.say("squeue", "-h", "-o", "%N", "-j", job_of(study, second)).strip()
    if node:
        cluster.lose_node(node)
        cluster.bring_back(node)
    wait_until(lambda: states(study) == {"completed"}, PATIENCE_S, "the runs on the cluster", 1.0)
    wait_until(lambda: states(undisturbed) == {"completed"}, PATIENCE_S, "the local runs", 1.0)
    assert sum(len(read_run(run_dir).attempts) for run_dir in (first, second)) >= 3
    for mine, other in zip(run_dirs(undisturbed), run_dirs(study), strict=True):
        assert mine.name == other.name
        done = [json.loads((folder / "DONE.json").read_text()) for folder in (mine, other)]
        assert done[0]["loss_nats"] == done[1]["loss_nats"] and done[0]["step"] == done[1]["step"]
        assert curve(mine) == curve(other)


def test_two_processes_of_one_job_train_a_run_with_the_identity_of_one(cluster, tmp_path):
    yaml = YAML.replace("use: one", "use: two").replace("[pre-ln, angpt]", "[pre-ln]").replace("60k", "10k")
    study = submit(tmp_path, "--executor", "slurm", yaml=yaml)
    wait_until(lambda: states(study) == {"completed"}, PATIENCE_S, "the run", 1.0)
    alone = cli.run(["plan", str(tmp_path / "experiments.yaml")])
    assert alone == 0 and len(run_dirs(study)) == 1
    (tmp_path / "experiments.yaml").write_text(yaml.replace("use: two", "use: one"))
    from scalewright.orchestrator.plan.make import plan_file

    plan, _ = plan_file(tmp_path / "experiments.yaml")
    assert plan.run_ids == [run_dirs(study)[0].name]
    (logs,) = {path.parent for path in study.jobs_dir.glob("*/logs/*.out")}
    assert len(list(logs.glob("*_1_log.out"))) == 1
