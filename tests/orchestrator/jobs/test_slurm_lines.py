"""What squeue, sacct and scontrol print, read into facts about jobs."""

import pytest

from scalewright.orchestrator.jobs import slurm_commands as commands


def test_squeue_lines_of_waiting_arrays_name_each_element():
    text = "7_[1-3,5%2]|PENDING|Priority||scalewright:ab12\n8|RUNNING|None|n1|\n"
    found = [(job.job, job.state) for job in commands.parse_squeue(text)]
    assert found == [("7_1", "PENDING"), ("7_2", "PENDING"), ("7_3", "PENDING"), ("7_5", "PENDING"), ("8", "RUNNING")]
    assert commands.comment_uuid("x scalewright:ab12 y") == "ab12" and commands.comment_uuid("other") is None


def test_a_comment_with_the_separator_in_it_does_not_shift_the_fields():
    job = next(commands.parse_squeue("7|RUNNING|None|n1|a|b scalewright:ab12\n"))
    assert job.comment == "a|b scalewright:ab12" and job.nodes == "n1"


def test_sacct_lines_give_every_incarnation_with_who_cancelled_it():
    text = "7_1|REQUEUED|0:0|1700000000|n1|c|\n7_1|CANCELLED by 1000|0:15|1700000100|n1|c|\n"
    text += "7_[2-3%1]|PENDING|0:0|Unknown||c|\n"
    found = [(one.job, one.state, one.by, one.ended_at) for one in commands.parse_sacct(text)]
    assert found[:2] == [("7_1", "REQUEUED", "", 1.7e9), ("7_1", "CANCELLED", "1000", 1.7e9 + 100)]
    assert found[2:] == [("7_2", "PENDING", "", None), ("7_3", "PENDING", "", None)]


@pytest.mark.parametrize(
    ("said", "cancelled"),
    [
        ("JobState=COMPLETING Reason=None Dependency=(null) Restarts=0 PreemptTime=None", True),
        ("JobState=CANCELLED Reason=None Restarts=0", True),
        ("JobState=RUNNING Reason=None Restarts=0 PreemptTime=2026-11-30T07:58:28", False),  # in its grace time
        ("JobState=COMPLETING Reason=None Restarts=0 PreemptTime=2026-11-30T07:58:28", False),
        ("JobState=COMPLETING Reason=TimeLimit Restarts=0 PreemptTime=None", False),
        ("JobState=COMPLETING Reason=None Restarts=1", False),  # the controller has requeued it
        ("", False),
    ],
)
def test_a_job_that_a_person_cancelled_is_told_from_one_that_comes_back(monkeypatch, said, cancelled):
    monkeypatch.setattr(commands, "call", lambda *a: commands.Reply(bool(said), f"JobId=8 {said} NodeList=n1\n"))
    assert commands.is_cancelled("7_1", 0) is cancelled
