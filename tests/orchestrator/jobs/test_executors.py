"""Every executor of the table: its object, how it cuts work into jobs; and jobs of another version's executor."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scalewright.orchestrator.config.resources import EXECUTORS, Profile
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.jobs import executors
from scalewright.orchestrator.jobs.control import stop
from scalewright.orchestrator.jobs.executors import here, local
from scalewright.orchestrator.jobs.executors.executor import Executor, find_executor
from scalewright.orchestrator.jobs.packing import NamedPack, Work
from scalewright.orchestrator.jobs.records import read_chunks
from scalewright.orchestrator.jobs.restarts import restarts_of_job
from scalewright.orchestrator.jobs.snapshot import Snapshot
from scalewright.orchestrator.jobs.submit import Order, pack_record
from scalewright.orchestrator.study import Study

sys.path.insert(0, str(Path(__file__).parent))
from fleet import Fleet  # noqa: E402

pytestmark = pytest.mark.xdist_group("local-jobs")


@pytest.mark.parametrize("name", EXECUTORS)
def test_a_name_of_the_table_is_an_executor_of_that_name(name):
    assert isinstance(find_executor(name), Executor) and find_executor(name).name == name


def test_every_executor_is_in_the_table():
    folder = Path(executors.__path__[0])
    assert {path.stem for path in folder.glob("*.py") if "EXECUTOR = " in path.read_text()} == set(EXECUTORS)


def test_another_name_is_refused_with_all_that_there_are():
    with pytest.raises(UserError, match=rf"slurn: not an executor \(expected {', '.join(EXECUTORS)}\)"):
        find_executor("slurn")


@pytest.mark.parametrize(
    ("name", "profile", "max_parallel", "expected"),
    [
        ("debug", Profile(pack=2), 3, ["abcdefg"]),
        ("local", Profile(pack=2), None, ["abg", "cf", "de"]),
        ("local", Profile(threads=2), 2, ["abcdefg"]),
        ("slurm", Profile(pack=2), 3, ["ab", "cd", "ef", "g"]),
        ("slurm", Profile(pack=2, at_once=2), 3, ["abcd", "efg"]),
        ("slurm", Profile(), None, ["abcdefg"]),
    ],
)
def test_work_is_cut_as_the_executor_carries_it_out(tmp_path, monkeypatch, name, profile, max_parallel, expected):
    monkeypatch.setattr(local, "n_places", lambda: 3)
    work = [Work(run, f"/runs/{run}", wall_s=200.0 + index) for index, run in enumerate("abcdefg")]
    packs = find_executor(name).cut(Study.at(tmp_path), work, profile, max_parallel)
    assert sorted("".join(one.run_id for one in pack) for pack in packs) == sorted(expected)


@pytest.mark.parametrize(
    ("name", "lanes", "of_snapshot"), [("local", 1, True), ("slurm", 3, True), ("debug", 1, False)]
)
def test_a_job_has_the_lanes_and_the_code_of_its_executor(name, lanes, of_snapshot):
    snapshot = Snapshot("/snapshots/abc", "abc", None, False, [], 1)
    pack = NamedPack("p0000", (Work("a", "/runs/a"),), "default", Profile(at_once=3))
    record = pack_record("s", pack, snapshot, Order(executor=name))
    assert (record.lanes, record.root == snapshot.root) == (lanes, of_snapshot)


@pytest.mark.parametrize(
    ("name", "leaves", "exit_code"), [("local", True, 144), ("none", True, 144), ("slurm", False, 75)]
)
def test_a_job_asks_to_be_started_again_as_what_started_it_does(monkeypatch, name, leaves, exit_code):
    asked = []
    monkeypatch.setattr("subprocess.run", lambda command, **options: asked.append(command))
    for variable, value in {"SUBMITIT_EXECUTOR": name, "SLURM_JOB_ID": "8"}.items():
        monkeypatch.setenv(variable, value)
    restarts = restarts_of_job()
    assert (restarts.ends_when_asked, restarts.after_hang()) == (leaves, exit_code)
    assert asked == ([["scontrol", "requeue", "8"]] if name == "slurm" else [])


def test_jobs_of_an_executor_of_another_version_are_in_doubt_and_their_runs_not_started_twice(tmp_path):
    one = Fleet(tmp_path, 1)
    one.behave(0, steps=4000, step_s=0.05)
    one.submit()
    one.wait(lambda: one.states() == ["running"], "the run to start")
    (chunk,) = read_chunks(one.study.jobs_dir)
    replace(chunk, executor="moon").write(one.study.jobs_dir)
    try:
        assert one.states() == ["running"]  # it gave a sign of life just now
        assert one.submit().n_claimed == 0 and read_chunks(one.study.jobs_dir) == []
        assert stop(one.target(0), "cancel").n_asked == 1  # its stop file reaches it
        one.wait(lambda: not here.is_alive(chunk, one.study.jobs_dir, "p0000"), "the job to end")
        one.wait(lambda: one.states() != ["running"], "the end to be seen")
        assert one.states() == ["unknown"] and "moon is no executor of this version" in one.reason(0)
    finally:
        chunk.write(one.study.jobs_dir)
        local.pause_jobs(one.study, wait_s=10.0)
        assert one.states() == ["cancelled"]
        one.database.close()
