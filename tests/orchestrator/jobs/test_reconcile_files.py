"""What is read from and written to run directories and jobs: facts, ownership, errors that are the same."""

import threading

import pytest

from scalewright.orchestrator.files import require, write_json
from scalewright.orchestrator.jobs.carrier import error_key
from scalewright.orchestrator.jobs.lanes import lane_dir, write_lanes
from scalewright.orchestrator.jobs.records import Chunk, Pack, read_chunks
from scalewright.orchestrator.runs.job_environment import job_place
from scalewright.orchestrator.runs.journal import Journal
from scalewright.orchestrator.runs.ownership import new_token, take_ownership
from scalewright.orchestrator.runs.processes import Process
from scalewright.orchestrator.runs.records import Done, Stop
from scalewright.orchestrator.runs.run_files import read_run


def attempt(run_dir, outcome=None, tokens=100, **job):
    journal = Journal.open(
        run_dir, {"run_id": run_dir.name, "token": "t", "job": job, "resume_step": 0, "resume_tokens": 0}
    )
    journal.metrics(1, tokens, {"loss_nats": 1.0})
    if outcome:
        journal.end(outcome, 1, tokens, error="RuntimeError: x" if outcome == "failed" else None)
    journal.close()
    return journal


def done(attempt):
    return Done("completed", attempt, 1, 100, 2.0, 3.0, None, 1.0, 1.0, time=5.0)


def test_a_run_without_a_directory_is_a_run_without_any_sign(tmp_path):
    run = read_run(tmp_path / "absent")
    assert (run.done, run.stop, run.attempts, run.last_sign) == (None, None, (), 0.0)


def test_an_attempt_is_read_from_its_first_and_last_whole_line(tmp_path):
    journal = attempt(tmp_path, tokens=300, job_id="7", array_task=2, cluster="c")
    with journal.path.open("ab") as file:
        file.write(b'{"type":"end","outcome":"compl')
    newest = read_run(tmp_path).newest
    assert (newest.tokens, newest.outcome) == (300, None)
    assert newest.is_of("c", "7_2") and not newest.is_of("c", "7") and not newest.is_of("d", "7_2")


def test_errors_in_a_row_count_until_tokens_advance_or_somebody_forgives_them(tmp_path):
    for tokens in (100, 100, 100):
        attempt(tmp_path, "failed", tokens)
    assert read_run(tmp_path).n_errors == 3
    write_json(tmp_path / "again.json", {"time": 0.0, "attempts": 3})
    assert read_run(tmp_path).n_errors == 0
    attempt(tmp_path, "failed", 200)
    attempt(tmp_path, None, 200)
    run = read_run(tmp_path)
    assert run.n_errors == 1 and run.why_failed() is None
    assert run.why_failed(blamed="out of memory") == "out of memory"


def test_a_stop_file_made_by_hand_means_cancel(tmp_path):
    (tmp_path / "stop").touch()
    assert read_run(tmp_path).stop == Stop("cancel")
    write_json(tmp_path / "stop", {"why": "hold"})
    assert read_run(tmp_path).stop == Stop("hold")


def test_the_newer_owner_fences_the_older_off(tmp_path):
    old = take_ownership(tmp_path, 1, new_token())
    assert old.holds()
    new = take_ownership(tmp_path, 2, new_token())
    assert new.holds() and not old.holds()
    assert not old.finish(done(1))
    assert not (tmp_path / "DONE.json").exists()
    assert new.finish(done(2)) and require(tmp_path / "DONE.json", Done) == done(2)


def test_an_outcome_is_written_once_even_by_two_at_the_same_time(tmp_path):
    owner = take_ownership(tmp_path, 1, new_token())
    wrote, start = [], threading.Barrier(8)

    def finish(number):
        start.wait()
        wrote.append(owner.finish(done(number)))

    threads = [threading.Thread(target=finish, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrote.count(True) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["DONE.json", "owner.json"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("FileNotFoundError: /data/1.bin", "FileNotFoundError: /data/22.bin", True),
        ("ValueError: shape (3, 4) at 0x7f01", "ValueError: shape (5, 6) at 0x7f99", True),
        ("Traceback\n  line 3\nKeyError: 'a'", "Traceback\n  line 9\nKeyError: 'a'", True),
        ("KeyError: 'a'", "KeyError: 'b'", False),
        ("RuntimeError: out of memory", "RuntimeError: no such tensor", False),
    ],
)
def test_errors_are_the_same_when_only_numbers_addresses_or_paths_differ(one, other, same):
    assert (error_key(one) == error_key(other)) is same


def test_a_place_is_keyed_by_cluster_job_and_restart():
    slurm = {"SLURM_JOB_ID": "79", "SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "2", "SLURM_CLUSTER_NAME": "c"}
    place = {"cluster": "c", "job_id": "77", "restart": 3, "array_task": 2}
    assert job_place(slurm | {"SLURM_RESTART_COUNT": "3"}) == place
    assert job_place({"SLURM_JOB_ID": "5"}) == {"cluster": "slurm", "job_id": "5", "restart": 0, "array_task": None}
    assert job_place({"SUBMITIT_LOCAL_JOB_ID": "44"})["cluster"].startswith("local:")


def test_a_recycled_process_number_is_another_process():
    this = Process.this()
    assert this.is_alive()
    assert not Process(this.host, this.pid, "1").is_alive()
    assert Process("elsewhere", this.pid, this.started).is_alive() is None


def test_lanes_share_a_pack_without_leaving_a_run_out_or_doubling_one(tmp_path):
    runs = [str(tmp_path / "runs" / str(index)) for index in range(7)]
    write_lanes(tmp_path, Pack("s", "p0000", runs, "/root", "hash", lanes=3))
    lanes = [Pack.read(lane_dir(tmp_path, lane)) for lane in range(3)]
    assert [lane.runs[0] for lane in lanes] == runs[:3]  # each starts with a cheap one
    assert sorted(run for lane in lanes for run in lane.runs) == runs


def test_chunks_come_oldest_first_and_closed_ones_only_when_asked_for(tmp_path):
    for number, uuid in enumerate("cab"):
        Chunk(uuid, f"s{number}", "slurm", ["p0000"], created=float(number), closed=uuid == "a").write(tmp_path)
    assert [chunk.uuid for chunk in read_chunks(tmp_path)] == ["c", "b"]
    assert [chunk.uuid for chunk in read_chunks(tmp_path, closed=True)] == ["c", "a", "b"]
