"""Checkpoints that runs of different length share: one leaves them where another begins its decay."""

from scalewright.orchestrator.runs.trunk import trunk_dir, trunk_of
from scalewright.orchestrator.talk import say
from scalewright.orchestrator.train import checkpoint
from scalewright.orchestrator.train.assignment import Assignment


def adopt(job: Assignment) -> None:
    """Give a run that has no checkpoint the latest one of its trunk that lies before its own decay, if there is one."""
    trunk = trunk_of(job.spec)
    if not job.settings.trunk or trunk is None or next(checkpoint.checkpoints(job.run_dir), None):
        return
    last_step = trunk.n_tokens // job.spec.batch_tokens
    for path in checkpoint.in_folder(trunk_dir(job.run_dir, trunk.trunk_id)):
        saved = checkpoint.read(path, trunk.trunk_id)
        if saved is None or saved["step"] > last_step:
            continue
        patience = job.training.divergence.patience * job.spec.n_steps
        if saved["progress"]["monitor"]["most_high_steps"] >= patience:
            return  # alone it would have counted as diverged by then
        progress = saved["progress"] | {"wall_s": 0.0, "final": {}}
        checkpoint.save(job.run_dir, saved | {"run_id": job.run_id, "progress": progress})
        say(f"{job.run_id}: begins at step {saved['step']}, where a longer run of trunk {trunk.trunk_id} left off")
        return


def steps_kept(job: Assignment) -> frozenset[int]:
    """Return the steps at which this run leaves its state to others."""
    return job.steps_at(job.settings.keep_at) if job.settings.trunk else frozenset()
