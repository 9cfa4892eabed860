"""Where this process runs, as an attempt is keyed: cluster, job, restart count. Knows environment variables only."""

import os
import socket
from collections.abc import Mapping
from typing import Any

KEPT_BACK = ("SCALEWRIGHT_DB", "PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE")
KEPT_BACK_PREFIXES = ("SUBMITIT_", "SLURM_", "SBATCH_", "PMI_", "PMIX_")


def goes_along(name: str) -> bool:
    """Tell whether a variable of the submitter's environment goes along with its jobs.

    Not what a surrounding job left, and not the database's address and password: a job never opens the database, and
    what is exported lies in the controller's state folder.
    """
    return name not in KEPT_BACK and not name.startswith(KEPT_BACK_PREFIXES)


def job_place(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return {"cluster", "job_id", "restart", "array_task"} of this job; array_task is None outside an array."""
    env = os.environ if environment is None else environment
    if "SLURM_JOB_ID" in env:
        return _slurm_place(env)
    job_id = env.get("SUBMITIT_LOCAL_JOB_ID") or str(os.getpid())
    return {"cluster": f"local:{socket.gethostname()}", "job_id": job_id, "restart": 0, "array_task": None}


def _slurm_place(env: Mapping[str, str]) -> dict[str, Any]:
    task = env.get("SLURM_ARRAY_TASK_ID")
    return {
        "cluster": env.get("SLURM_CLUSTER_NAME", "slurm"),
        "job_id": env.get("SLURM_ARRAY_JOB_ID") or env["SLURM_JOB_ID"],
        "restart": int(env.get("SLURM_RESTART_COUNT") or 0),
        "array_task": int(task) if task is not None else None,
    }
