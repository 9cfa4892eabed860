"""A site as SLURM is out of the box: no accounting, and SIGTERM alone before a preempted job is killed."""

import pytest
from cluster import PATIENCE_S, wait_until
from slurm_site import Site

from scalewright.orchestrator.jobs import slurm_commands
from scalewright.orchestrator.jobs.slurm_arrays import check_reachable

pytestmark = pytest.mark.xdist_group("slurm")


@pytest.fixture
def site(plain_cluster, tmp_path):
    def make(n_runs):
        one = Site(tmp_path, n_runs)
        one.cluster = plain_cluster
        return one

    return make


def test_the_site_has_no_accounting_and_says_so(plain_cluster):
    reply, accounted = slurm_commands.sacct(["1234"])
    assert not reply.ok and "accounting" in reply.error and accounted == []
    assert not slurm_commands.read_limits().accounting
    check_reachable()


def test_runs_end_in_the_right_states_without_accounting(site):
    four = site(4)
    four.behave(1, error_at=1, error="no such tensor")
    four.behave(2, steps=4000, step_s=0.1, deaf=True)
    four.behave(3, exit_at=1)
    four.on(pack=1)
    four.wait_for_step(2, 2)
    four.cluster.run("scancel", four.job("p0002"))
    four.until("completed", "failed", "cancelled", "interrupted")
    assert "no such tensor" in four.reason(1)


def test_the_databases_password_reaches_neither_the_controller_nor_the_study(site, monkeypatch, tmp_path):
    monkeypatch.setenv("SCALEWRIGHT_DB", "postgresql://me:sesame29@nowhere/runs")
    monkeypatch.setenv("PGPASSWORD", "sesame29")
    monkeypatch.setenv("HARMLESS", "barley31")
    one = site(1)
    one.behave(0, steps=3, step_s=0.1)
    one.on()
    one.until("completed")
    places = (one.cluster.conf.parent, tmp_path)
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    found = {word for word in (b"sesame29", b"barley31") for path in files if word in path.read_bytes()}
    assert found == {b"barley31"}  # the environment is in the controller's state, without the secrets


def test_a_job_preempted_by_sigterm_alone_saves_requeues_itself_and_comes_back(site):
    one = site(1)
    one.behave(0, steps=150, step_s=0.1)
    one.on(n_cpus=4)
    one.wait_for_step(0, 5)
    command = ["sbatch", "--partition=high", "--cpus-per-task=4", "--output=/dev/null", "--wrap=sleep 2"]
    one.cluster.run(*command)
    wait_until(lambda: one.attempts()[0].outcome == "preempted", PATIENCE_S, "the preemption")
    one.until("completed")
    assert [attempt.job["restart"] for attempt in one.attempts()] == [0, 1] and one.is_whole(0, 150)


def test_a_controller_that_does_not_answer_changes_no_state(site):
    one = site(1)
    one.behave(0, steps=120, step_s=0.1)
    one.on()
    wait_until(lambda: one.states() == ["running"], PATIENCE_S, "the run to start", 0.2)
    one.cluster.end_daemon("slurmctld")  # a controller that is killed may forget a job that just started
    try:
        assert one.states() == ["running"]
        assert one.states() == ["running"]
    finally:
        one.cluster.start_controller()
    one.until("completed")
    assert len(one.attempts()) == 1
