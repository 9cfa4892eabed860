"""Submission to SLURM and what is made of its answers, on a fake of its commands that a test moves by hand."""

import json
import os
import re
import shutil
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from scalewright.orchestrator.cli import run as scalewright
from scalewright.orchestrator.config.resources import Profile, Resources
from scalewright.orchestrator.errors import Partial, UserError
from scalewright.orchestrator.jobs import slurm_commands as commands
from scalewright.orchestrator.jobs import submit as submit_module
from scalewright.orchestrator.jobs.control import stop, take_back
from scalewright.orchestrator.jobs.observe import refresh
from scalewright.orchestrator.jobs.records import read_chunks
from scalewright.orchestrator.jobs.whereabouts import whereabouts
from scalewright.orchestrator.runs.journal import Journal
from scalewright.orchestrator.runs.ownership import new_token, take_ownership

sys.path.insert(0, str(Path(__file__).parent))
from fake_slurm import FakeSlurm  # noqa: E402
from fleet import Fleet  # noqa: E402


class Site(Fleet):
    def on(self, pack=1, **options):
        profiles = {"default": Profile(pack=pack, **options.pop("profile", {}))}
        return self.submit(executor="slurm", resources=Resources(profiles=profiles), **options)

    def age(self, seconds):
        """Make every chunk look as if it had been submitted earlier."""
        for chunk in read_chunks(self.study.jobs_dir, closed=True):
            replace(chunk, created=chunk.created - seconds).write(self.study.jobs_dir)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    def make(**settings):
        one = FakeSlurm(tmp_path / "fake", **settings)
        monkeypatch.setenv("PATH", f"{one.folder}{os.pathsep}{os.environ['PATH']}")
        return one

    return make


@pytest.fixture
def site(tmp_path):
    sites = []

    def make(n_runs):
        sites.append(Site(tmp_path / "study", n_runs))
        return sites[-1]

    (tmp_path / "study").mkdir()
    yield make
    for one in sites:
        one.database.close()


def test_one_squeue_and_one_sacct_serve_a_look_at_any_number_of_arrays(fake, site):
    slurm, many = fake(max_array=10), site(35)
    many.on()
    assert len(read_chunks(many.study.jobs_dir)) == 4
    before = [len(slurm.calls(name)) for name in ("squeue", "sacct")]
    many.states()
    assert [len(slurm.calls(name)) for name in ("squeue", "sacct")] == [before[0] + 1, before[1] + 1]


def test_arrays_ask_for_what_the_profile_says_and_for_any_option_by_its_name(fake, site):
    fake()
    two = site(2)
    wanted = {
        "partition": "gpu",
        "account": "me",
        "qos": "high",
        "constraint": "a100",
        "gpus": 2,
        "cpus": 4,
        "mem": "8G",
    }
    options = {"mail-type": "END", "exclusive": True}
    two.on(profile=wanted | {"time": "2h", "setup": ["module load cuda"], "sbatch": options}, max_parallel=1)
    script = next(two.study.jobs_dir.glob("*/logs/*submission.sh")).read_text()
    for line in (
        "--array=0-1%1",
        "--partition=gpu",
        "--account=me",
        "--qos=high",
        "--constraint=a100",
        "--gpus-per-node=2",
        "--cpus-per-task=4",
        "--mem=8G",
        "--time=120",
        "--mail-type=END",
        "--exclusive",
        "--requeue",
        "--signal=USR2@90",
    ):
        assert f"#SBATCH {line}\n" in script
    assert "wckey" not in script and script.index("module load cuda") < script.index("srun ")
    assert f"#SBATCH --comment=scalewright:{read_chunks(two.study.jobs_dir)[0].uuid}\n" in script


def test_the_cheapest_runs_are_the_first_elements(fake, site):
    fake()
    five = site(5)
    five.on(pack=2)
    chunk = read_chunks(five.study.jobs_dir)[0]
    packs = [
        json.loads((five.study.jobs_dir / chunk.submission_id / name / "pack.json").read_text()) for name in chunk.packs
    ]
    assert [Path(run).name for pack in packs for run in pack["runs"]] == five.ids  # planned seconds grow with the seed


def shares(one):
    """Each array's jobs at once and what it waits for, as its script says."""
    scripts = [path.read_text() for path in sorted(one.study.jobs_dir.glob("*/logs/*submission.sh"))]
    scripts.sort(key=lambda text: [chunk.uuid in text for chunk in read_chunks(one.study.jobs_dir)].index(True))
    found = (re.search(r"--array=\S+%(\d+)", text) for text in scripts)
    waits = (re.search(r"--dependency=(\S+)", text) for text in scripts)
    return [(int(at_once[1]), wait and wait[1]) for at_once, wait in zip(found, waits, strict=True)]


def test_the_arrays_of_a_class_have_all_places_one_after_another(fake, site):
    fake(max_array=10)
    many = site(25)
    many.on(max_parallel=3)
    assert shares(many) == [(3, None), (3, "afterany:1000"), (3, "afterany:1010")]


def test_a_second_submission_takes_the_places_left_and_a_third_waits_for_both(fake, site):
    fake()
    nine = site(9)
    parts = [nine.runs[start : start + 3] for start in (0, 3, 6)]
    for nine.runs in parts:
        nine.on(max_parallel=4)
    assert shares(nine) == [(3, None), (1, None), (3, "afterany:1000:1003")]


def test_a_dependency_of_the_profile_stays_beside_the_turn(fake, site):
    fake(max_array=2)
    four = site(4)
    four.on(max_parallel=1, profile={"sbatch": {"dependency": "afterok:77"}})
    assert shares(four) == [(1, "afterok:77"), (1, "afterok:77,afterany:1000")]


def test_a_lost_reply_is_adopted_by_its_comment_at_once(fake, site):
    slurm, two = fake(lose_reply=True), site(2)
    two.on()
    chunk = read_chunks(two.study.jobs_dir)[0]
    assert chunk.job_id == "1000" and two.states() == ["queued", "queued"]
    assert two.on().n_claimed == 0 and len(slurm.calls("sbatch")) == 1


def test_a_lost_reply_with_a_silent_queue_is_adopted_later(fake, site):
    slurm, two = fake(lose_reply=True), site(2)
    slurm.down("squeue", "sacct")
    two.on()
    assert read_chunks(two.study.jobs_dir)[0].job_id is None
    assert two.states() == ["claimed", "claimed"] and two.on().n_claimed == 0
    slurm.down()
    assert two.states() == ["queued", "queued"]
    assert read_chunks(two.study.jobs_dir)[0].job_id == "1000"


def test_a_refusal_is_the_users_error_and_frees_the_runs(fake, site):
    slurm, two = fake(refuse="Invalid account or account/partition combination specified"), site(2)
    with pytest.raises(UserError, match="Invalid account"):
        two.on()
    assert two.states() == ["planned", "planned"]
    with slurm.state() as state:
        state["refuse"] = ""
    assert two.on().n_claimed == 2


def test_a_refused_array_is_forgotten_though_others_of_its_submission_wait(fake, site, capfd):
    slurm, four = fake(max_array=2, refuse_after=1, refuse="Invalid qos specification"), site(4)
    with pytest.raises(Partial, match="1 array submitted, then: .*Invalid qos"):
        four.on()
    assert four.states() == ["queued", "queued", "planned", "planned"] and capfd.readouterr().err == ""
    with slurm.state() as state:
        state["refuse"] = ""
    assert four.on().n_claimed == 2


def test_status_says_which_job_has_a_run(fake, site):
    fake()
    two = site(2)
    two.on()
    assert whereabouts(two.study) == dict(zip(two.ids, ("1000_0", "1000_1"), strict=True))
    take_ownership(two.dir(0), 1, new_token())
    assert whereabouts(two.study)[two.ids[0]] == f"1000_0 on {socket.gethostname()}"


def test_runs_beyond_the_sites_submit_limit_wait_for_the_next_submit(fake, site):
    slurm, nine = fake(max_submit=4), site(9)
    with pytest.raises(Partial, match="4 jobs"):
        nine.on()
    assert sorted(nine.states()) == ["planned"] * 5 + ["queued"] * 4
    assert nine.states()[:4] == ["queued"] * 4  # the cheapest first
    for job in slurm.jobs():
        slurm.set(job, "COMPLETED")


@pytest.mark.parametrize("room", [0, 1, 4, 10, 11])
def test_a_limit_that_only_sbatch_knows_is_filled_to_the_last_job(fake, site, room):
    slurm, eleven = fake(qos_submit=room, max_array=5), site(11)
    if room < 11:
        with pytest.raises(Partial, match=f"{room} jobs? submitted.* submit again later for {11 - room} runs?"):
            eleven.on()
    else:
        eleven.on()
    assert eleven.states() == ["queued"] * room + ["planned"] * (11 - room)
    assert sum(len(chunk.packs) for chunk in read_chunks(eleven.study.jobs_dir)) == len(slurm.jobs()) == room
    for job in slurm.jobs():
        slurm.set(job, "CANCELLED")
    with slurm.state() as state:
        state["qos_submit"] = 11
    if room < 11:
        assert eleven.on().n_claimed == 11 - room


def test_without_a_controller_nothing_is_submitted(fake, site):
    slurm, one = fake(), site(1)
    slurm.down("scontrol")
    with pytest.raises(UserError, match="does not answer"):
        one.on()
    assert one.states() == ["planned"]


def test_an_array_cancelled_by_its_user_is_never_submitted_again(fake, site):
    slurm, three = fake(), site(3)
    three.on()
    slurm.set("1000_0", "RUNNING")
    commands.scancel(["1000_1"])
    assert three.states() == ["queued", "cancelled", "queued"]
    assert three.on().n_claimed == 0


def test_a_cancel_between_the_claim_and_sbatch_is_not_lost(fake, site, monkeypatch):
    slurm, two = fake(), site(2)
    claim = submit_module.claim_runs

    def claim_and_see_it_cancelled(*arguments, **options):
        claimed = claim(*arguments, **options)
        assert stop(two.target(0), "cancel").n_asked == 1
        return claimed

    monkeypatch.setattr(submit_module, "claim_runs", claim_and_see_it_cancelled)
    two.on()
    assert two.states() == ["cancelled", "queued"] and len(slurm.jobs()) == 2
    assert (two.dir(0) / "stop").exists()  # its job will pass it over


def test_cancelling_takes_exactly_the_named_elements_out_of_the_queue(fake, site):
    slurm, three = fake(), site(3)
    three.on()
    done = stop(three.target(1), "cancel")
    assert (done.n_now, done.n_asked) == (1, 0)
    assert [call[1:] for call in slurm.calls("scancel")] == [["1000_1"]]
    assert three.states() == ["queued", "cancelled", "queued"]


def test_a_cancel_that_the_cluster_refuses_says_so_and_costs_exit_code_3(fake, site, monkeypatch, capsys):
    slurm, two = fake(), site(2)
    two.on()
    monkeypatch.setattr("scalewright.orchestrator.jobs.executors.slurm.CANCEL_WAIT_S", 0.3)
    monkeypatch.chdir(two.study.root)
    slurm.down("scancel")
    assert scalewright(["cancel", two.ids[0]]) == 3
    said = capsys.readouterr().err
    assert "not cancelled: 1 job (scancel: error: Unable to contact slurm controller" in said
    assert (two.dir(0) / "stop").exists() and two.states() == ["cancelled", "queued"]  # its job will pass it over
    slurm.down("squeue")
    assert scalewright(["cancel", two.ids[0]]) == 3
    assert "the cluster was not asked to cancel anything" in capsys.readouterr().err
    slurm.down()
    assert scalewright(["cancel", two.ids[0]]) == 0 and slurm.calls("scancel")[-1] == ["scancel", "1000_0"]
    assert two.states() == ["cancelled", "queued"] and scalewright(["cancel", two.ids[0]]) == 0


def test_a_status_does_not_wait_long_for_a_cluster_that_is_slow_and_says_how_old_its_answer_is(
    fake, site, monkeypatch, capfd
):
    slurm, one = fake(), site(1)
    one.on()
    assert one.states() == ["queued"]
    monkeypatch.setattr(commands, "LOOK_TIMEOUT_S", 1.0)
    monkeypatch.setattr(commands, "SAID_AFTER_S", 0.2)
    monkeypatch.chdir(one.study.root)
    for name in ("sacct", "squeue"):
        program = slurm.folder / name
        kept = program.read_text()
        program.write_text("#!/bin/sh\nexec sleep 300\n")
        answered = one.study.jobs_dir / "answered"
        os.utime(answered, (answered.stat().st_atime, answered.stat().st_mtime - 600))
        began = time.monotonic()
        assert scalewright(["status"]) == 0
        assert time.monotonic() - began < 200
        out, err = capfd.readouterr()
        assert f"asked {name}, no answer yet; waiting 1 s at most" in err
        assert f"does not answer ({name}: no answer in 1 s); states are the last known, of 10 min ago" in err
        assert "1 queued" in out
        program.write_text(kept)
        assert one.states() == ["queued"]


def test_held_runs_that_waited_stay_held_though_their_jobs_were_cancelled_for_that(fake, site):
    fake()
    three = site(3)
    three.on()
    assert stop(three.target(), "hold").n_now == 3
    assert three.states() == three.states() == ["held"] * 3
    assert take_back(three.target(), ("held",)) == 3
    assert three.on().n_claimed == 3


def test_a_job_that_nobody_lists_is_left_alone_for_the_grace_and_unknown_after_it(fake, site):
    slurm, one = fake(accounting=False), site(1)
    one.on()
    slurm.forget("1000")
    assert one.states() == ["queued"]
    one.age(1000)
    assert one.states() == ["unknown"]
    assert one.on().n_claimed == 0


def test_accounting_tells_the_end_of_a_job_that_the_controller_forgot(fake, site):
    slurm, one = fake(), site(1)
    one.on()
    slurm.set("1000", "TIMEOUT")
    slurm.forget("1000")
    assert one.states() == ["interrupted"] and "timeout" in one.reason(0)
    assert one.on().n_claimed == 1


@pytest.mark.parametrize(("exit_code", "state"), [("140:0", "interrupted"), ("0:12", "interrupted"), ("1:0", "failed")])
def test_a_signal_that_came_before_a_job_could_listen_does_not_blame_it(fake, site, exit_code, state):
    slurm, one = fake(), site(1)
    one.on()
    slurm.set("1000", "FAILED", exit_code=exit_code)
    assert one.states() == [state]


def test_jobs_that_slurm_holds_are_told_with_what_to_do(fake, site):
    slurm, one = fake(), site(1)
    one.on()
    slurm.set("1000", "PENDING", "launch failed requeued held")
    assert any("scontrol release 1000" in line for line in refresh(one.study))
    assert one.states() == ["queued"]


def test_a_node_failure_with_a_requeue_is_a_run_that_waits(fake, site):
    slurm, one = fake(), site(1)
    one.on()
    slurm.set("1000", "RUNNING")
    slurm.set("1000", "PREEMPTED", "BeginTime")
    assert one.states() == ["queued"]
    assert one.on().n_claimed == 0


def play_attempt(run_dir, outcome, *, task=None, tokens=100):
    """Write what an attempt of the first array (or job) leaves behind."""
    job = {"cluster": "fake", "job_id": "1000", "restart": 0, "array_task": task}
    journal = Journal.open(run_dir, {"run_id": run_dir.name, "token": "t", "job": job, "resume_tokens": 0})
    journal.metrics(1, tokens, {"loss_nats": 1.0})
    if outcome:
        journal.end(outcome, 1, tokens, error="RuntimeError: x" if outcome == "failed" else None)
    journal.close()


@pytest.mark.parametrize("outcome", ["preempted", "failed"])
def test_a_run_whose_job_may_go_on_with_it_is_never_free_while_the_cluster_is_silent(fake, site, outcome):
    slurm, one = fake(), site(1)
    one.on()
    slurm.set("1000", "RUNNING")
    play_attempt(one.dir(0), outcome)
    slurm.down("squeue", "sacct")
    assert one.states() == ["queued"]
    assert one.on().n_claimed == 0 and len(slurm.calls("sbatch")) == 1


def test_a_waiting_run_shows_why_it_waits_now(fake, site):
    slurm, two = fake(), site(2)
    two.on()
    for reason in ("Priority", "Resources", "ReqNodeNotAvail, UnavailableNodes:n3", "DependencyNeverSatisfied"):
        slurm.set("1000_0", "PENDING", reason)
        assert two.states() == ["queued", "queued"] and two.reason(0) == reason


def test_runs_whose_database_was_lost_belong_to_their_jobs_again(fake, site):
    slurm, three = fake(), site(3)
    three.on()
    for index, outcome in ((0, None), (1, "preempted")):
        slurm.set(f"1000_{index}", "RUNNING")
        play_attempt(three.dir(index), outcome, task=index)
    slurm.set("1000_1", "PREEMPTED", "BeginTime")
    three.database.close()
    Path(three.study.database).unlink()
    again = Site(three.study.root, 3)
    assert again.states() == ["running", "queued", "queued"]
    assert again.on().n_claimed == 0 and len(slurm.calls("sbatch")) == 1
    again.database.close()


def test_runs_whose_job_records_were_lost_are_judged_by_their_own_files(fake, site):
    fake()
    three = site(3)
    three.on()
    for index, outcome in ((0, "preempted"), (1, None)):
        play_attempt(three.dir(index), outcome, task=index)
    shutil.rmtree(three.study.jobs_dir)
    assert three.states() == ["interrupted", "running", "unknown"]
