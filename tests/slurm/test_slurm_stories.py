"""What happens to runs on a real cluster. The stories are played at the same time, each by its own study and thread."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from cluster import PATIENCE_S, wait_until
from slurm_site import Site

from scalewright.orchestrator.config.resources import Retry
from scalewright.orchestrator.files import require
from scalewright.orchestrator.jobs.control import stop, take_back
from scalewright.orchestrator.jobs.records import read_chunks
from scalewright.orchestrator.runs.records import Done
from scalewright.orchestrator.runs.run_files import read_run

pytestmark = pytest.mark.xdist_group("slurm")
STORIES = {}


def story(function):
    STORIES[function.__name__] = function
    return function


@pytest.fixture(scope="module")
def told(cluster, tmp_path_factory):
    """Play every story at once; a test then waits for its own and fails where the story did."""
    with ThreadPoolExecutor(len(STORIES)) as pool:
        yield {name: pool.submit(tell, cluster, tmp_path_factory.mktemp("study")) for name, tell in STORIES.items()}


@pytest.mark.parametrize("name", STORIES)
def test_on_the_cluster(told, name):
    told[name].result()


@story
def a_time_limit_ends_at_a_checkpoint_and_the_same_job_goes_on(cluster, folder):
    one = Site(folder, 1)
    one.behave(0, steps=400, step_s=0.1)
    one.on("n1", time="1min")  # the warning comes up to 90 s early, that is, at the first look of the controller
    one.until("completed")
    ends = [attempt.outcome for attempt in one.attempts()]
    assert len(ends) >= 2 and set(ends[:-1]) == {"preempted"} and ends[-1] == "completed"
    assert one.is_whole(0, 400)
    restarts = [attempt.job["restart"] for attempt in one.attempts()]
    assert restarts == list(range(len(restarts))) and len({attempt.job["job_id"] for attempt in one.attempts()}) == 1


@story
def a_job_that_is_deaf_to_the_warning_is_killed_at_its_limit_and_its_run_goes_on(cluster, folder):
    one = Site(folder, 1)
    one.behave(0, steps=4000, step_s=0.1, deaf=True)
    one.on("n1", time="1min")
    one.until("interrupted")
    assert "timeout" in one.reason(0)
    one.behave(0, steps=one.newest_step(0) + 5)
    one.on("n1")
    one.until("completed")
    assert one.is_whole(0, one.newest_step(0))


@story
def a_preempted_job_saves_and_comes_back(cluster, folder):
    one = Site(folder, 1)
    one.behave(0, steps=200, step_s=0.1)
    one.on("n2", n_cpus=12)
    one.wait_for_step(0, 5)
    cluster.run(
        "sbatch", "--partition=high", "--nodelist=n2", "--cpus-per-task=12", "--output=/dev/null", "--wrap=sleep 2"
    )
    wait_until(lambda: one.attempts()[0].outcome == "preempted", PATIENCE_S, "the preemption")
    one.until("completed")
    assert len(one.attempts()) == 2 and one.is_whole(0, 200)


@story
def an_operators_requeue_goes_on_from_the_checkpoint(cluster, folder):
    one = Site(folder, 1)
    one.behave(0, steps=150, step_s=0.1)
    one.on("n1")
    one.wait_for_step(0, 5)
    cluster.run("scontrol", "requeue", one.job())
    one.until("completed")
    assert len(one.attempts()) == 2 and one.is_whole(0, 150)


@story
def a_lost_node_gives_no_signal_and_nothing_is_lost_but_the_last_steps(cluster, folder):
    one = Site(folder, 1)
    one.behave(0, steps=200, step_s=0.1, checkpoint_every=10)
    one.on("n3")
    one.wait_for_step(0, 20)
    cluster.lose_node("n3")
    wait_until(lambda: one.states() == ["queued"], PATIENCE_S, "the run to be waiting again")
    cluster.bring_back("n3")
    one.until("completed")
    assert [attempt.outcome for attempt in one.attempts()] == [None, "completed"]
    assert one.is_whole(0, 200)
    zombie_story(cluster, folder / "zombie")


def zombie_story(cluster, folder):
    """A node whose daemon died: its job runs on unseen while SLURM starts it elsewhere. Only one of them writes."""
    folder.mkdir()
    one = Site(folder, 1)
    one.behave(0, steps=600, step_s=0.1)
    one.on("n3")
    one.wait_for_step(0, 5)
    cluster.end_daemon("slurmd-n3", signum=9)
    cluster.run("scontrol", "update", "nodename=n3", "state=down", "reason=lost")
    wait_until(lambda: "PENDING" in cluster.say("squeue", "-h", "-j", one.job(), "-o", "%T"), PATIENCE_S, "the requeue")
    cluster.run("scontrol", "update", f"jobid={one.job()}", "reqnodelist=")
    wait_until(lambda: len(one.attempts()) == 2, PATIENCE_S, "the second attempt")
    wait_until(lambda: one.attempts()[0].outcome == "fenced", PATIENCE_S, "the zombie to be fenced off")
    cluster.kill_jobs("n3")
    cluster.bring_back("n3")
    one.until("completed")
    assert [attempt.outcome for attempt in one.attempts()] == ["fenced", "completed"]


@story
def too_much_memory_is_named_and_retried_once(cluster, folder):
    one = Site(folder, 1)
    one.behave(0, memory_mb_at=[2, 400])
    one.on("n1")
    one.until("interrupted")
    assert "memory" in one.reason(0)
    one.on("n1")
    one.until("failed")
    assert one.on("n1").n_claimed == 0


@story
def a_python_error_is_retried_once_by_its_job_and_the_others_go_on(cluster, folder):
    three = Site(folder, 3)
    three.behave(0, error_at=2, errors_until_attempt=1)
    three.behave(1, error_at=2, error="no such tensor")
    three.on("n1")
    three.until("completed", "failed", "completed")
    assert "no such tensor" in three.reason(1)
    assert len(three.attempts(0)) == len(three.attempts(1)) == 2
    assert {attempt.job["restart"] for attempt in three.attempts(1)} == {0, 1}
    assert three.on("n1").n_claimed == 0


@story
def a_crash_of_the_whole_process_blames_its_run_and_frees_the_others(cluster, folder):
    two = Site(folder, 2)
    two.behave(0, exit_at=2, exit_code=7)
    two.on("n1")
    two.until("interrupted", "interrupted")
    assert "exit code 7" in two.reason(0) and "before it started" in two.reason(1)
    two.on("n1", pack=1)
    two.until("failed", "completed")


@story
def the_same_error_everywhere_stops_the_batch(cluster, folder):
    five = Site(folder, 5)
    for index in range(5):
        five.behave(index, error_at=1, error=f"file /data/{index}.bin not found")
    five.on("n1", pack=1, max_parallel=1, retry=Retry(errors=0, same_error=3), notify=f"cat >> {folder}/told")
    five.until(*["failed"] * 3, "held", "held")
    assert (folder / "told").read_text().startswith("the same error in 3 runs stopped the batch")
    assert five.on("n1").n_claimed == 0


@story
def a_hanging_process_ends_itself_and_goes_on(cluster, folder):
    one = Site(folder, 1)
    one.behave(0, hang_at=2, hangs_until_attempt=1)
    one.on("n1", retry=Retry(hang="3s"))
    one.until("completed")
    assert len(one.attempts()) == 2


@story
def a_user_cancels_pending_and_running_runs_and_they_stay_cancelled(cluster, folder):
    three = Site(folder, 3)
    three.behave(0, steps=4000, step_s=0.1)
    three.on("n1", pack=1, max_parallel=1)
    three.wait_for_step(0, 2)
    done = stop(three.target(), "cancel")
    assert (done.n_now, done.n_asked) == (2, 1), done
    three.until("cancelled", "cancelled", "cancelled")
    assert three.attempts()[0].outcome == "stopped"
    assert three.on("n1").n_claimed == 0
    three.behave(0)
    take_back(three.target(), ("cancelled",))
    assert three.on("n1").n_claimed == 3
    three.until("completed", "completed", "completed")


@story
def a_cancel_with_slurms_own_command_is_never_retried(cluster, folder):
    two = Site(folder, 2)
    for index, deaf in enumerate((True, False)):  # one hears the signal, saves, and must not take it for a preemption
        two.behave(index, steps=4000, step_s=0.1, deaf=deaf)
    two.on("n1", pack=1)
    for index in (0, 1):
        two.wait_for_step(index, 2)
    cluster.run("scancel", two.job("p0000"), two.job("p0001"))
    two.until("cancelled", "cancelled")
    assert two.attempts(1)[0].outcome == "preempted"
    assert "cancelled by" in two.reason(0) and "cancelled by" in two.reason(1)
    assert two.on("n1").n_claimed == 0
    assert cluster.say("squeue", "-h", "-t", "PD,R", "-j", two.job("p0001").partition("_")[0]) == ""


LOST_REPLY = """
import os, sys
sys.path[:0] = {path!r}
from pathlib import Path
from scalewright.orchestrator.jobs.records import Chunk
from slurm_site import Site
Chunk.with_job_id = lambda *a: os._exit(9)  # sbatch was called; its reply dies with this process
Site(Path({root!r}), 2).on("n1", pack=1)
"""


@story
def a_submission_whose_reply_was_lost_is_adopted_and_not_repeated(cluster, folder):
    two = Site(folder, 2)
    here = Path(__file__).parent
    script = LOST_REPLY.format(path=[str(here), str(here.parent / "orchestrator" / "jobs")], root=str(folder))
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert killed.returncode == 9, killed.stderr
    assert two.on("n1").n_claimed == 0
    two.until("completed", "completed")
    assert len(two.attempts(0)) == len(two.attempts(1)) == 1
    assert two.job("p0001").endswith("_1")


@story
def a_submission_that_never_reached_the_cluster_is_made_again(cluster, folder):
    one = Site(folder, 1)
    here = Path(__file__).parent
    script = LOST_REPLY.replace("Chunk.with_job_id =", "import submitit; submitit.SlurmExecutor.submit_array =")
    script = script.format(path=[str(here), str(here.parent / "orchestrator" / "jobs")], root=str(folder))
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    assert one.on("n1").n_claimed == 0  # too early to be sure
    chunk = read_chunks(one.study.jobs_dir)[0]
    replace(chunk, created=chunk.created - 1000).write(one.study.jobs_dir)
    assert one.on("n1").n_claimed == 1
    one.until("completed")
    assert len(one.attempts()) == 1


@story
def several_runs_at_once_share_a_job_and_come_back_together(cluster, folder):
    five = Site(folder, 5)
    for index in range(5):
        five.behave(index, steps=60, step_s=0.1)
    five.behave(4, steps=2)
    five.on("n1", pack=3, at_once=2)  # five runs in one job of two tasks
    five.wait_for_step(0, 5)
    five.wait_for_step(1, 5)
    assert len({run.newest.job["job_id"] for run in map(read_run, (five.dir(0), five.dir(1)))}) == 1
    cluster.run("scontrol", "requeue", five.job())
    five.until(*["completed"] * 5)
    assert all(five.is_whole(index, 60) for index in range(4))
    assert {len(five.attempts(index)) for index in range(5)} == {1, 2}


@story
def arrays_are_cut_at_the_sites_limit_and_every_run_is_done_once(cluster, folder):
    many = Site(folder, 120)
    for index in range(120):
        many.behave(index, steps=2, step_s=0.01)
    many.on("n1", pack=2, max_parallel=3)
    chunks = list(read_chunks(many.study.jobs_dir, closed=True))
    assert [len(chunk.packs) for chunk in chunks] == [51, 9]
    many.until(*["completed"] * 120, seconds=240)
    assert all(len(many.attempts(index)) == 1 for index in range(120))
    outcomes = [require(many.dir(index) / "DONE.json", Done).outcome for index in range(120)]
    assert outcomes == ["completed"] * 120
