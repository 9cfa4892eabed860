"""The verbs that run things, as a person types them, on a small study with the payload that trains nothing."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from tiny_study import write_study

from scalewright.orchestrator import cli
from scalewright.orchestrator.report.format import duration, short_count
from scalewright.orchestrator.report.progress import Progress, advice, measure_rows

pytestmark = pytest.mark.xdist_group("local-jobs")


@pytest.fixture
def study(tmp_path, monkeypatch):
    write_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    yield tmp_path
    call("cancel", "experiments.yaml", "--now")


def call(*arguments):
    return cli.run(list(arguments))


def rows(capsys, *arguments):
    capsys.readouterr()
    assert call("status", *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def wait_until_done(capsys, n_runs=4):
    deadline = time.monotonic() + 180
    while (found := rows(capsys, "experiments.yaml"))["states"].get("completed", 0) < n_runs:
        assert time.monotonic() < deadline, found
        time.sleep(0.3)
    return found


def test_submit_status_and_submit_again(study, capsys):
    assert call("submit", "--payload", "debug") == 0
    assert "submitted 4 runs in " in capsys.readouterr().out
    found = wait_until_done(capsys)
    assert [row["done"] for row in found["rows"]] == ["2/2", "2/2"] and found["left_s"] == 0
    assert call("submit", "--payload", "debug") == 0
    assert "nothing to submit" in capsys.readouterr().out
    assert call("status", "experiments.yaml") == 0
    assert "4/4 runs done" in capsys.readouterr().out


def test_a_dry_run_says_which_jobs_there_would_be_and_writes_nothing(study, capsys):
    assert call("submit", "--dry-run", "--max-parallel", "1") == 0
    out = capsys.readouterr().out
    assert "4 of 4 runs would go into 1 local job; nothing was submitted" in out
    assert not (study / "runs").exists() and not (study / "jobs").exists() and not (study / "runs.sqlite").exists()


def test_debugging_runs_everything_in_this_process(study, capsys):
    assert call("submit", "--executor", "debug", "--payload", "debug") == 0
    assert "4/4 runs done" in capsys.readouterr().out
    assert "SCALEWRIGHT_INLINE" not in os.environ


def test_logs_show_what_a_run_printed_and_follow_it_to_its_end(study, capsys):
    call("submit", "--payload", "debug")
    wait_until_done(capsys)
    run = rows(capsys, "experiments.yaml", "--runs")["rows"][0]["run_id"]
    assert call("logs", run[:6]) == 0
    assert "Job completed successfully" in capsys.readouterr().out
    assert call("logs", run[:6], "--follow", "--lines", "0") == 0


def test_cancel_and_resume_by_run_id(study, capsys):
    call("plan")
    run = rows(capsys)["rows"] and rows(capsys, "--runs")["rows"][0]["run_id"]
    assert call("cancel", run[:8]) == 0
    assert "1 run cancelled" in capsys.readouterr().out
    call("submit", "--payload", "debug")
    wait_until_done(capsys, 3)
    assert rows(capsys)["states"] == {"completed": 3, "cancelled": 1}
    assert call("resume", run[:8]) == 0
    call("submit", "--payload", "debug")
    assert wait_until_done(capsys)["states"] == {"completed": 4}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("submit", "absent.yaml"), 1, "no such file"),
        (("submit", "--executor", "cloud"), 1, "cloud"),
        (("logs", "ffff"), 1, "no run, experiment or file"),
        (("cancel", "ff"), 1, "4 characters"),
        (("status", "nothing.yaml"), 1, "no such file"),
        (("submit", "--max-parallel", "0"), 2, "max-parallel"),
    ],
)
def test_a_mistake_costs_one_line(study, capsys, arguments, code, said):
    call("plan")
    capsys.readouterr()
    assert call(*arguments) == code
    assert said in capsys.readouterr().err


def test_ctrl_c_while_watching_leaves_the_jobs_alone(study, capsys):
    assert call("submit", "--payload", "debug") == 0
    script = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    script += "from scalewright.orchestrator.cli import run; print('ready', flush=True); "
    script += "sys.exit(run(['status', 'experiments.yaml', '--watch']))"
    watcher = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert watcher.stdout.readline() == "ready\n"
    time.sleep(0.1)  # past the call into the command; a later moment is as good
    watcher.send_signal(signal.SIGINT)
    _, said = watcher.communicate(timeout=180)
    assert watcher.returncode == 130 and said.count("\n") == 1 and "nothing is lost" in said
    wait_until_done(capsys)


def test_runs_that_nothing_moves_on_come_with_what_to_do():
    def of(**states):
        return advice(Progress(sum(states.values()), states, 0, 0, 0.0, None))

    assert of(running=1, interrupted=2) == of(completed=3, planned=1, cancelled=1) == []  # they go on, or were asked to
    interrupted, failed = of(completed=1, interrupted=2, failed=1)
    assert interrupted == "2 runs are interrupted; go on with: scalewright submit"
    assert failed.startswith("1 run is failed;") and "scalewright retry" in failed


def test_a_submit_of_runs_that_were_stopped_says_how_they_go_on(study, capsys):
    assert call("plan") == 0 and call("cancel", "experiments.yaml") == 0
    capsys.readouterr()
    assert call("submit", "--payload", "debug") == 0
    out = capsys.readouterr().out
    assert "nothing to submit" in out and "4 runs are cancelled; go on with: scalewright resume, then submit" in out
    assert call("resume", "experiments.yaml") == 0 and call("hold", "experiments.yaml") == 0
    capsys.readouterr()
    assert call("submit", "--payload", "debug") == 0
    assert "4 runs are held; go on with: scalewright release, then submit" in capsys.readouterr().out


def test_doctor_says_what_to_do(study, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("shutil.which", lambda *a, **k: None)
    assert call("doctor", "--json") == 0
    findings = {one["what"]: one for one in json.loads(capsys.readouterr().out)}
    assert findings["SLURM"]["do"] and findings["atomic rename"]["level"] == "ok"


# --- numbers ---------------------------------------------------------------------------------------------------------


def row(state, tokens=0, planned=100, speed=None, left_s=10.0, seen=1000.0, label="a", reason=None, wall_s=20.0):
    return {
        "label": label,
        "size": "s",
        "state": state,
        "state_reason": reason,
        "n_tokens": tokens,
        "n_tokens_planned": planned,
        "tokens_per_s": speed,
        "left_s": left_s,
        "last_seen_at": seen,
        "wall_s_planned": wall_s,
        "validation_loss_nats": None,
        "train_loss_nats": float("nan"),
    }


def test_time_left_is_shared_among_what_runs_but_no_less_than_the_longest():
    two = [row("running", speed=5.0, left_s=10.0), row("running", speed=5.0, left_s=10.0)]
    assert measure_rows([*two, row("queued", left_s=20.0)], 1000.0).left_s == 20.0
    assert measure_rows([*two, row("queued", left_s=60.0)], 1000.0).left_s == 60.0
    assert measure_rows([row("queued")], 1000.0).left_s is None
    assert measure_rows([row("completed", tokens=100)], 1000.0).left_s == 0.0


def test_a_plan_that_was_too_hopeful_is_stretched_by_what_is_seen():
    slow = row("running", planned=100, wall_s=10.0, speed=2.5, left_s=30.0)  # planned 10 tokens/s
    assert measure_rows([slow, row("queued", left_s=20.0)], 1000.0).left_s == 30.0 + 4 * 20.0


def test_what_is_seen_is_summed_up_once_for_a_whole_study():
    rows = [row("running", planned=100, wall_s=10.0, speed=2.5) for _ in range(300)] + [row("queued")] * 20_000
    began = time.process_time()
    measure_rows(rows, 1000.0)
    assert time.process_time() - began < 3.0  # a look at every row for every waiting one takes a minute


def test_a_diverged_run_owes_no_more_tokens_and_a_silent_one_has_no_speed():
    progress = measure_rows([row("diverged", tokens=40), row("running", speed=7.0, seen=0.0)], 1000.0)
    assert (progress.n_tokens, progress.n_tokens_planned, progress.tokens_per_s) == (40, 140, 0.0)
    assert progress.n_done == 1


def test_a_group_shows_the_reason_that_needs_a_look():
    progress = measure_rows([row("running", reason="attempt 1"), row("failed", reason="no such tensor")], 1000.0)
    assert progress.groups[0]["why"] == "no such tensor"
    silent = measure_rows([row("running", seen=1000.0)], 1000.0 + 420)
    assert silent.groups[0]["why"] == "no sign of life for 7 min"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (None, "?")]
)
def test_durations_read_as_a_person_says_them(seconds, text):
    assert duration(seconds) == text
    assert [short_count(n) for n in (950, 999.6, 812_000, 999_600, 3.21e6, 2e15)] == [
        "950",
        "1k",
        "812k",
        "1M",
        "3.21M",
        "2000T",
    ]


def test_a_group_tells_what_most_needs_a_look_and_a_missing_reason_is_none():
    nothing = row("running", reason=float("nan"))
    waits = row("queued", reason="Priority")
    assert measure_rows([nothing, waits], 1000.0).groups[0]["why"] == "Priority"
    assert measure_rows([nothing], 1000.0).groups[0]["why"] == ""
    bad = row("failed", reason="no such tensor")
    assert measure_rows([waits, bad], 1000.0).groups[0]["why"] == "no such tensor"
