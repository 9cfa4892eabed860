"""What of the submitter's environment goes along with its jobs."""

import os

from scalewright.orchestrator.jobs.executors.local import job_environment
from scalewright.orchestrator.jobs.slurm_arrays import environment_for_jobs

SECRETS = {
    "SCALEWRIGHT_DB": "postgresql://me:sesame@host/runs",
    "PGPASSWORD": "sesame",
    "PGPASSFILE": "/home/me/.pgpass",
}


def test_neither_the_database_nor_what_a_surrounding_job_left_goes_along_with_a_job(monkeypatch):
    for name, value in (SECRETS | {"SLURM_JOB_ID": "7", "SUBMITIT_EXECUTOR": "slurm", "MODULEPATH": "/sw"}).items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    local = job_environment("/code")
    with environment_for_jobs():
        on_a_cluster = dict(os.environ)
    for environment in (local, on_a_cluster):
        assert not {*SECRETS, "SLURM_JOB_ID", "SUBMITIT_EXECUTOR"} & environment.keys()
        assert "sesame" not in "".join(environment.values())
        assert environment["MODULEPATH"] == "/sw"
    assert dict(os.environ) == before
