"""The fake of SLURM's commands says what a real cluster says, wherever the unit tests rely on it."""

import os
import subprocess
from pathlib import Path

import pytest
from cluster import PATIENCE_S, wait_until
from fake_slurm import FakeSlurm, opened

from scalewright.orchestrator.jobs import slurm_commands as commands

pytestmark = pytest.mark.xdist_group("slurm")
SCRIPT = """#!/bin/bash
#SBATCH --array=0-{last}
#SBATCH --comment=scalewright:abc123
#SBATCH --output=/dev/null
#SBATCH --begin=now+1hour
true
"""
NOTHING_LIKE_IT = "4000000"


@pytest.fixture(params=["fake", "real"])
def site(request, tmp_path, monkeypatch):
    """Either of the two, as this process would meet it, and with its largest array."""
    if request.param == "real":
        request.getfixturevalue("cluster")
        return int(commands.read_limits().max_array_size)
    fake = FakeSlurm(tmp_path / "fake", max_array=51)
    monkeypatch.setenv("PATH", f"{fake.folder}{os.pathsep}{os.environ['PATH']}")
    return 51


def sbatch(folder, last):
    script = folder / "script.sh"
    script.write_text(SCRIPT.format(last=last))
    return subprocess.run(["sbatch", str(script)], capture_output=True, text=True, check=False)


def test_a_waiting_array_is_listed_by_element_with_its_comment(site, tmp_path):
    reply = sbatch(tmp_path, last=3)
    assert reply.returncode == 0 and reply.stdout.startswith("Submitted batch job ")
    array = reply.stdout.split()[-1]
    answer, queue = commands.squeue()
    mine = [job for job in queue if commands.array_id(job.job) == array]
    assert answer.ok and [job.job for job in mine] == [f"{array}_{index}" for index in range(4)]
    assert {job.state for job in mine} == {"PENDING"}
    assert {commands.comment_uuid(job.comment) for job in mine} == {"abc123"}


def test_an_element_cancelled_while_it_waits_leaves_no_trace_and_the_others_wait_on(site, tmp_path):
    array = sbatch(tmp_path, last=2).stdout.split()[-1]
    commands.scancel([f"{array}_1"])
    left = {f"{array}_0": "PENDING", f"{array}_2": "PENDING"}
    wait_until(lambda: states(array) == left, PATIENCE_S, "the cancellation")
    wait_until(lambda: len(accounted(array)) == 2, PATIENCE_S, "the accounting", 0.5)
    assert {one.job: one.state for one in accounted(array)} == left


def states(array):
    return {job.job: job.state for job in commands.squeue()[1] if commands.array_id(job.job) == array}


def accounted(array):
    return commands.sacct([array])[1]


def test_the_accounting_of_an_unknown_job_is_an_empty_answer_and_no_error(site):
    reply, records = commands.sacct([NOTHING_LIKE_IT])
    assert reply.ok and records == []


def test_an_array_beyond_the_sites_limit_is_refused(site, tmp_path):
    reply = sbatch(tmp_path, last=site)
    assert reply.returncode == 1 and "Invalid job array specification" in reply.stderr
    assert sbatch(tmp_path, last=site - 1).returncode == 0


def test_the_configuration_says_what_limits_hold(site):
    limits = commands.read_limits()
    assert limits.max_array_size == site and limits.accounting and limits.version and limits.cluster
    assert commands.scontrol("ping").ok and limits.max_submit_jobs is None


def test_a_controller_that_is_gone_is_an_error_not_an_empty_queue(site, monkeypatch, tmp_path, request):
    if "real" in request.node.name:
        conf = tmp_path / "slurm.conf"
        cluster = request.getfixturevalue("cluster")
        conf.write_text(
            cluster.conf.read_text().replace(f"SlurmctldPort={cluster.port}", f"SlurmctldPort={cluster.port + 7}")
        )
        monkeypatch.setenv("SLURM_CONF", str(conf))
    else:
        folder = os.environ["PATH"].partition(os.pathsep)[0]
        with opened(Path(folder)) as state:
            state["down"] = ["squeue"]
    reply, queue = commands.squeue()
    assert not reply.ok and queue == [] and "Unable to contact slurm controller" in reply.error
