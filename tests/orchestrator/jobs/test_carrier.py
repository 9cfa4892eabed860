"""What a job decides when its pack is over: whether it is to be started again, and whether anybody hears of it."""

import pytest

from scalewright.orchestrator.files import write_json
from scalewright.orchestrator.jobs import carrier, slurm_commands
from scalewright.orchestrator.jobs.records import Pack
from scalewright.orchestrator.runs.journal import Journal
from scalewright.orchestrator.runs.records import Done, Identity, SpecFile

ERROR = "RuntimeError: x"


@pytest.fixture
def pack(tmp_path, monkeypatch):
    """Three runs on two devices, none of which may fail twice; what the job asks for is kept, not done."""
    asked = []
    monkeypatch.setattr(carrier, "requeue", asked.append)
    runs = [tmp_path / "runs" / name for name in "abc"]
    for run_dir in runs:
        write_json(run_dir / "spec.json", SpecFile(1, run_dir.name, Identity({}, {}, {}, None), {"errors_allowed": 0}))
    one = Pack("s", "p0000", [str(run) for run in runs], "/root", "hash", devices=2)
    one.write(tmp_path / "jobs" / "s" / "p0000")
    one_life = lambda **outcomes: carrier.conclude(tmp_path / "jobs" / "s" / "p0000", one, outcomes)  # noqa: E731
    return runs, asked, one_life


def fail(run_dir):
    with Journal.open(run_dir, {"run_id": run_dir.name, "token": "t", "job": {}, "resume_tokens": 0}) as journal:
        journal.end("failed", 0, 0, error=ERROR)


def finish(run_dir):
    write_json(run_dir / "DONE.json", Done("completed", 1, 1, 100, 2.0, 3.0, None, 1.0, 1.0, time=5.0))


def test_runs_that_had_no_turn_after_an_error_get_one_in_a_new_process(pack):
    (a, b, c), asked, one_life = pack
    fail(a)
    one_life(a="failed")
    assert len(asked) == 1 and "2 not started" in asked[0]
    finish(b), finish(c)
    one_life(a="skipped", b="completed", c="completed")
    assert len(asked) == 1


def test_a_pack_in_which_all_had_their_turn_is_over_even_with_runs_that_failed(pack):
    (a, b, c), asked, one_life = pack
    fail(a), finish(b), finish(c)
    one_life(a="failed", b="completed", c="completed")
    assert asked == []


def test_a_run_that_another_attempt_took_over_is_no_reason_to_start_again(pack):
    (_, b, c), asked, one_life = pack
    finish(b), finish(c)
    one_life(a="fenced", b="completed", c="completed")
    assert asked == []


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_job_asked_to_end_starts_again_unless_a_person_cancelled_it(pack, monkeypatch, cancelled):
    _, asked, one_life = pack
    monkeypatch.setattr(carrier.signals, "requested", lambda: "preempted")
    monkeypatch.setattr(slurm_commands, "is_cancelled", lambda job, restart: (job, restart) == ("7_1", 2))
    restart = {"SLURM_RESTART_COUNT": "2" if cancelled else "3"}
    place = {"SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_ID": "8", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    for name, value in (place | restart).items():
        monkeypatch.setenv(name, value)
    one_life(a="preempted")
    assert asked == ([] if cancelled else ["asked to end"])
