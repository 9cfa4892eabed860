"""Submission on this machine, with jobs that are real processes and a payload that trains nothing."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from scalewright.db.store import set_run_states
from scalewright.orchestrator.config.resources import Retry
from scalewright.orchestrator.jobs.control import stop, take_back
from scalewright.orchestrator.jobs.executors import here
from scalewright.orchestrator.jobs.executors.local import pause_jobs
from scalewright.orchestrator.jobs.records import read_chunks
from scalewright.orchestrator.jobs.snapshot import take_snapshot
from scalewright.orchestrator.jobs.submit import Order, submit
from scalewright.orchestrator.runs.journal import journal_path
from scalewright.orchestrator.runs.run_files import read_run

sys.path.insert(0, str(Path(__file__).parent))
from fleet import Fleet, planned_run, record  # noqa: E402

pytestmark = pytest.mark.xdist_group("local-jobs")


@pytest.fixture
def fleet(tmp_path):
    fleets = []

    def make(n_runs=4):
        fleets.append(Fleet(tmp_path, n_runs))
        return fleets[-1]

    yield make
    for one in fleets:
        pause_jobs(one.study, wait_s=10.0)
        one.database.close()


def test_every_run_is_done_once_and_submitting_again_does_nothing(fleet):
    four = fleet(4)
    receipt = four.submit(max_parallel=2)
    assert receipt.n_claimed == 4
    assert four.wait_until_over() == ["completed"] * 4
    assert four.submit().n_claimed == 0
    assert all(len(read_run(four.dir(i)).attempts) == 1 for i in range(4))
    assert all(json.loads((four.dir(i) / "spec.json").read_text())["run_id"] == four.ids[i] for i in range(4))


def test_a_run_that_is_running_is_not_submitted_again(fleet):
    one = fleet(1)
    one.behave(0, steps=1000)
    one.submit()
    one.wait(lambda: one.states() == ["running"], "the run to start")
    assert one.submit().n_claimed == 0


def test_a_killed_job_is_interrupted_and_goes_on_from_its_checkpoint_with_the_same_curve(fleet, tmp_path):
    two = fleet(2)
    for index in (0, 1):
        two.behave(index, steps=30, step_s=0.02)
    two.submit(max_parallel=1)
    two.wait(lambda: len(list((two.dir(0) / "ckpt").glob("*"))) > 1, "a checkpoint")
    os.kill(two.job_process(), signal.SIGKILL)
    two.wait(lambda: two.states() == ["interrupted"] * 2, "the death to be seen")
    two.submit(max_parallel=1)
    assert two.wait_until_over() == ["completed"] * 2
    attempts = read_run(two.dir(0)).attempts
    assert len(attempts) == 2 and attempts[0].outcome is None
    assert two.losses(0) == two.losses(1)  # the debug payload's loss follows from the steps alone
    assert [step for step, _ in two.losses(0)] == list(range(1, 31))


def test_a_run_whose_process_is_killed_again_without_a_token_more_fails_and_says_why(fleet):
    two = fleet(2)
    two.behave(0, hang_at=2)
    for n_attempts, seen in enumerate((["interrupted"] * 2, ["failed", "interrupted"]), start=1):
        two.submit(max_parallel=1)
        two.wait(lambda n=n_attempts: [one.step for one in read_run(two.dir(0)).attempts] == [2] * n, "the run to hang")
        start = json.loads(journal_path(two.dir(0), n_attempts).read_text().splitlines()[0])
        os.kill(start["pid"], signal.SIGKILL)
        assert two.wait_until_over() == seen
        assert "killed (out of memory?)" in two.reason(0)
    two.submit(max_parallel=1)
    assert two.wait_until_over() == ["failed", "completed"]


def test_a_machine_that_was_started_anew_is_no_fault_of_the_run(fleet, monkeypatch):
    one = fleet(1)
    one.behave(0, hang_at=1)
    one.submit()
    one.wait(lambda: one.states() == ["running"], "the run to start")
    os.kill(one.job_process(), signal.SIGKILL)
    one.wait(lambda: not one.jobs_alive(), "the job to be gone")
    monkeypatch.setattr(here, "booted_at", time.time)
    assert one.states() == ["interrupted"]
    assert one.reason(0) == "its process is gone"


def test_an_error_is_retried_once_in_a_new_process_and_stays_with_its_reason(fleet):
    three = fleet(3)
    three.behave(0, error_at=2, errors_until_attempt=1)
    three.behave(1, error_at=2, error="no such tensor")
    three.submit(max_parallel=1)
    assert three.wait_until_over() == ["completed", "failed", "completed"]
    assert "no such tensor" in three.reason(1)
    assert len(read_run(three.dir(0)).attempts) == len(read_run(three.dir(1)).attempts) == 2
    assert len({json.loads(p.read_text().splitlines()[0])["pid"] for p in three.dir(1).glob("journal.*")}) == 2
    assert three.submit().n_claimed == 0
    three.behave(1)
    assert take_back(three.target(1), ("failed",)) == 1
    assert three.submit().n_claimed == 1
    assert three.wait_until_over() == ["completed"] * 3


def test_the_same_error_in_several_runs_stops_the_batch_with_one_message(fleet):
    six = fleet(6)
    for index in range(6):
        six.behave(index, error_at=1, error=f"file /data/{index}.bin not found")
    six.submit(max_parallel=1, retry=Retry(errors=0, same_error=3))
    states = six.wait_until_over()
    assert states == ["failed"] * 3 + ["held"] * 3
    assert "the same error in 3 runs stopped the batch" in six.reason(5)
    assert six.submit().n_claimed == 0


def test_a_cancelled_run_stops_at_a_checkpoint_and_waits_for_its_user(fleet):
    two = fleet(2)
    two.behave(0, steps=400)
    two.submit(max_parallel=1)
    two.wait(lambda: two.states()[0] == "running", "the first run to start")
    done = stop(two.target(), "cancel")
    assert done.n_asked == 2
    assert two.wait_until_over() == ["cancelled"] * 2
    assert list((two.dir(0) / "ckpt").glob("*"))
    assert two.submit().n_claimed == 0
    two.behave(0, steps=8)
    assert take_back(two.target(), ("cancelled",)) == 2
    two.submit(max_parallel=1)
    assert two.wait_until_over() == ["completed"] * 2


def test_cancelling_one_run_of_a_pack_leaves_the_others(fleet):
    three = fleet(3)
    three.behave(0, steps=40)
    three.submit(max_parallel=1)
    stop(three.target(1), "cancel")
    assert three.wait_until_over() == ["completed", "cancelled", "completed"]


def test_held_runs_are_not_submitted_until_released(fleet):
    two = fleet(2)
    assert stop(two.target(1), "hold").n_now == 1
    two.submit()
    assert two.wait_until_over() == ["completed", "held"]
    take_back(two.target(), ("held",))
    two.submit()
    assert two.wait_until_over() == ["completed"] * 2


def test_pausing_ends_jobs_at_a_checkpoint_and_the_next_submit_goes_on(fleet):
    two = fleet(2)
    two.behave(0, steps=60)
    two.submit(max_parallel=1)
    two.wait(lambda: two.states()[0] == "running", "the first run to start")
    assert pause_jobs(two.study) == 1
    assert two.states() == ["interrupted"] * 2
    two.submit(max_parallel=1)
    assert two.wait_until_over() == ["completed"] * 2
    assert [step for step, _ in two.losses(0)] == list(range(1, 61))


def test_a_hanging_job_ends_itself_and_its_run_goes_on(fleet):
    one = fleet(1)
    one.behave(0, hang_at=2, hangs_until_attempt=1)
    one.submit(retry=Retry(hang="2s"))
    assert one.wait_until_over() == ["completed"]
    assert len(read_run(one.dir(0)).attempts) == 2
    log = "".join(path.read_text() for path in one.study.jobs_dir.glob("*/logs/*_log.err"))
    assert "no sign of life" in log and "in _misbehave" in log


def test_the_notification_command_runs_once_when_the_last_job_is_over(fleet, tmp_path):
    four = fleet(4)
    four.submit(max_parallel=2, notify=f'echo "$SCALEWRIGHT_EVENT" >> {tmp_path}/told; cat >> {tmp_path}/told')
    four.wait_until_over()
    told = (tmp_path / "told").read_text()
    assert told.splitlines() == ["finished", "submission " + four_submission(four) + ": 4 of 4 runs with an outcome"]


def test_whoever_looks_next_tells_of_a_submission_whose_jobs_were_killed(fleet, tmp_path):
    two = fleet(2)
    two.behave(1, steps=400)
    two.submit(max_parallel=1, notify=f"cat >> {tmp_path}/told")
    two.wait(lambda: two.states() == ["completed", "running"], "the second run to start")
    os.kill(two.job_process(), signal.SIGKILL)
    two.wait(lambda: two.states() == ["completed", "interrupted"], "the death to be seen")
    two.states()
    assert (tmp_path / "told").read_text().endswith(": 1 of 2 runs with an outcome\n")


def four_submission(one):
    return read_chunks(one.study.jobs_dir, closed=True)[0].submission_id


def test_two_submissions_at_once_share_the_runs_and_none_is_doubled(fleet):
    eight = fleet(8)
    order, receipts = Order(payload="debug", max_parallel=1), []
    threads = [
        threading.Thread(target=lambda: receipts.append(submit(eight.study, eight.database, eight.runs, order)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(receipt.n_claimed for receipt in receipts) == 8
    assert eight.wait_until_over() == ["completed"] * 8
    assert all(len(read_run(eight.dir(i)).attempts) == 1 for i in range(8))


KILLED_AT = {
    "before the claim": "scalewright.orchestrator.jobs.submit.claim_runs",
    "after the claim": "scalewright.orchestrator.jobs.submit.write_spec",
    "before the packs": "scalewright.orchestrator.jobs.submit.write_packs",
    "before the jobs": "scalewright.orchestrator.jobs.executors.local.launch",
    "after the jobs": "scalewright.orchestrator.jobs.executors.local.record_jobs",
}

KILLER = """
import os, sys
sys.path[:0] = [{here!r}]
import importlib
from pathlib import Path
from fleet import Fleet
module, _, name = {victim!r}.rpartition(".")
setattr(importlib.import_module(module), name, lambda *a, **k: os._exit(9))
Fleet(Path({root!r}), 3).submit(max_parallel=1)
"""


@pytest.mark.parametrize("step", KILLED_AT)
def test_a_submission_killed_at_any_step_is_finished_by_the_next_and_nothing_runs_twice(fleet, tmp_path, step):
    three = fleet(3)
    script = KILLER.format(here=str(Path(__file__).parent), victim=KILLED_AT[step], root=str(tmp_path))
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert killed.returncode == 9, killed.stderr
    three.submit(max_parallel=1)
    assert three.wait_until_over() == ["completed"] * 3
    assert all(len(read_run(three.dir(i)).attempts) == 1 for i in range(3))


def test_a_job_runs_the_code_of_its_submission_and_refuses_any_other(fleet, monkeypatch):
    from scalewright.orchestrator.jobs import submit

    one = fleet(2)
    receipt = one.submit(max_parallel=1)
    assert one.wait_until_over() == ["completed"] * 2
    pack = next(one.study.jobs_dir.glob("*/p0000/pack.json"))
    assert json.loads(pack.read_text())["root"] == receipt.snapshot.root

    def tamper(*arguments):
        snapshot = take_snapshot(*arguments)
        (Path(snapshot.root) / "scalewright" / "models" / "__init__.py").write_text("tampered = True\n")
        return snapshot

    monkeypatch.setattr(submit, "take_snapshot", tamper)
    one.runs = [planned_run(99)]
    record(one.database, one.runs)
    one.submit()
    assert one.wait_until_over() == ["failed"]
    assert "the code changed after it was submitted" in one.reason(0)


def test_lines_that_come_in_after_a_job_was_seen_to_be_over_do_not_leave_its_run_running(fleet):
    one = fleet(1)
    one.behave(0, steps=400)
    one.submit()
    one.wait(lambda: one.states() == ["running"], "the run to start")
    os.kill(one.job_process(), signal.SIGKILL)
    one.wait(lambda: not one.jobs_alive(), "the job to be gone")
    assert one.states() == ["interrupted"]
    set_run_states(one.database, [(one.ids[0], "running", "attempt 1", {})])  # what a late line makes of it
    assert one.states() == ["interrupted"]
