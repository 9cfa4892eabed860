"""Which task of its job this process is, where a job has a task for each device. No torch."""

import os
from collections.abc import Mapping


def rank_of_task(size: int, environment: Mapping[str, str] | None = None) -> int | None:
    """Return which of `size` tasks of the job this process is, None when the job has another number of tasks."""
    env = os.environ if environment is None else environment
    for n_tasks, rank in (("SLURM_NTASKS", "SLURM_PROCID"), ("SUBMITIT_LOCAL_NTASKS", "SUBMITIT_LOCAL_GLOBALID")):
        if env.get(n_tasks) == str(size) and rank in env:
            return int(env[rank])
    return None
