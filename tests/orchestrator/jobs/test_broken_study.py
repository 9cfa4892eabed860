"""Records of jobs that cannot be used, and studies that were copied: what is about the others goes on."""

import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from scalewright.db.engine import open_database
from scalewright.orchestrator.cli import run as scalewright
from scalewright.orchestrator.files import UnusableFile
from scalewright.orchestrator.jobs.executors.local import pause_jobs
from scalewright.orchestrator.jobs.observe import refresh
from scalewright.orchestrator.jobs.records import Pack, read_chunks
from scalewright.orchestrator.jobs.submit import Order, submit
from scalewright.orchestrator.study import Study

sys.path.insert(0, str(Path(__file__).parent))
from fleet import Fleet  # noqa: E402

pytestmark = pytest.mark.xdist_group("local-jobs")
BROKEN = ["", "[]", "{", '{"outcome": "won"}', "\0\0\0", '{"submission_id": 7}']
JOB_FILES = ["chunk-*.json", "p0000/pack.json", "p0000/started.json", "submission.json", "p0000/failed.json"]


@pytest.fixture
def fleet(tmp_path):
    fleets = []

    def make(n_runs, name="study"):
        (tmp_path / name).mkdir()
        fleets.append(Fleet(tmp_path / name, n_runs))
        return fleets[-1]

    yield make
    for one in fleets:
        pause_jobs(one.study, wait_s=10.0)
        one.database.close()


def verbs(monkeypatch, study, capsys):
    """Ask every reading verb of a study; none may fail, and none may speak of a traceback."""
    monkeypatch.chdir(study.root)
    said = {}
    for verb in (["status"], ["status", "--runs"], ["runs"], ["db", "check"], ["sync"]):
        assert scalewright(verb) == 0, verb
        said[" ".join(verb)] = "".join(capsys.readouterr())
        assert "Traceback" not in said[" ".join(verb)]
    return said


@pytest.mark.parametrize("name", JOB_FILES)
def test_a_broken_record_of_jobs_costs_nobody_else_anything(fleet, monkeypatch, capsys, name):
    two = fleet(2)
    two.submit(max_parallel=2)
    assert two.wait_until_over() == ["completed"] * 2
    (job_dir,) = (path for path in two.study.jobs_dir.iterdir())
    target = next(iter(job_dir.glob(name)), job_dir / name)
    for content in BROKEN:
        target.write_text(content)
        verbs(monkeypatch, two.study, capsys)
        assert two.states() == ["completed"] * 2


@pytest.mark.parametrize("name", ["chunk-*.json", "p000*/pack.json"])
def test_runs_whose_job_nobody_can_ask_for_are_unknown_and_not_started_twice(fleet, monkeypatch, capsys, name):
    one = fleet(1)
    one.behave(0, steps=1000)
    one.submit()
    one.wait(lambda: one.states() == ["running"], "the run to start")
    (path,) = one.study.jobs_dir.glob(f"*/{name}")
    saved = path.read_bytes()
    path.write_text("")
    monkeypatch.setattr("scalewright.orchestrator.jobs.judge.GRACE_S", 0.0)
    verbs(monkeypatch, one.study, capsys)
    assert one.states() == ["unknown"]
    assert one.reason(0).startswith(f"{path.relative_to(one.study.root)}: it is empty; it may have a job still")
    assert one.submit().n_claimed == 0
    path.write_bytes(saved)
    monkeypatch.undo()
    assert one.states() == ["running"]


def test_a_broken_result_is_a_run_in_doubt_that_goes_on_when_a_person_says_so(fleet, monkeypatch, capsys):
    two = fleet(2)
    two.submit(max_parallel=2)
    assert two.wait_until_over() == ["completed"] * 2
    (two.dir(0) / "DONE.json").write_text('{"outcome": "won"}')
    Path(two.study.database).unlink()
    two.database = open_database(two.study.database)
    from fleet import record

    record(two.database, two.runs)
    assert two.states() == ["unknown", "completed"]
    assert two.reason(0).startswith(f"runs/{two.ids[0]}/DONE.json: no attempt in it; put it right, or remove it")
    verbs(monkeypatch, two.study, capsys)
    assert two.submit().n_claimed == 0
    (two.dir(0) / "DONE.json").unlink()
    assert scalewright(["retry", two.ids[0]]) == 0
    assert two.submit().n_claimed == 1
    assert two.wait_until_over() == ["completed"] * 2


@pytest.mark.parametrize("content", ["", "[]", '{"run_id": 7}'])
def test_a_broken_spec_fails_its_run_by_name_and_the_next_submission_mends_it(fleet, content):
    one = fleet(1)
    one.behave(0, steps=3, error_at=1, errors_until_attempt=1)
    one.submit()
    one.wait_until_over()
    (one.dir(0) / "spec.json").write_text(content)
    (one.dir(0) / "again.json").write_text(content)
    assert one.states()[0] in ("completed", "interrupted", "failed")
    one.submit()
    assert one.wait_until_over() == ["completed"]


def test_a_pack_that_cannot_be_read_fails_its_job_by_name(tmp_path):
    (tmp_path / "pack.json").write_text("[]")
    with pytest.raises(UnusableFile, match=r"pack\.json: it is not a JSON object"):
        Pack.read(tmp_path)


def test_a_copied_study_speaks_of_its_own_runs_alone(fleet, tmp_path):
    two = fleet(2)
    two.behave(0, steps=400), two.behave(1, steps=400)
    two.submit(max_parallel=2)
    two.wait(lambda: two.states() == ["running"] * 2, "the runs to start")
    with suppress(shutil.Error):  # checkpoints that the jobs removed meanwhile; all else is copied
        shutil.copytree(two.study.root, tmp_path / "copy")
    copy = Study(tmp_path / "copy", str(tmp_path / "copy" / "runs.sqlite"))
    said = refresh(copy)
    assert any(f"a copy of {two.study.root}" in line for line in said), said
    database = open_database(copy.database)
    with database.read() as connection:
        found = connection.exec_driver_sql("SELECT state, state_reason FROM runs").all()
    assert {state for state, _ in found} == {"interrupted"}
    assert all(f"submitted in {two.study.root}" in reason for _, reason in found)
    assert read_chunks(copy.jobs_dir, closed=True) == [] and pause_jobs(copy) == 0
    assert two.states() == ["running"] * 2
    receipt = submit(copy, database, two.runs, Order(payload="debug", max_parallel=2))
    assert receipt.n_claimed == 2 and str(copy.root) in receipt.snapshot.root
    record = next(copy.jobs_dir.glob(f"{receipt.submission_id}/*/pack.json"))
    assert all(Path(run).parent == copy.runs_dir for run in Pack.read(record.parent).runs)
    pause_jobs(copy, wait_s=20.0)
    database.close()


def test_a_moved_study_keeps_its_jobs_and_its_paths(fleet, tmp_path):
    one = fleet(1)
    one.submit()
    assert one.wait_until_over() == ["completed"]
    moved = one.study.root.rename(tmp_path / "elsewhere")
    (chunk,) = read_chunks(moved / "jobs", closed=True)
    pack = Pack.read(moved / "jobs" / chunk.submission_id / chunk.packs[0])
    assert [Path(run) for run in pack.runs] == [moved / "runs" / one.ids[0]]
    assert not any(
        str(tmp_path) in run for run in json.loads(next(moved.glob("jobs/*/p0000/pack.json")).read_text())["runs"]
    )
    one.study = Study(moved, str(moved / "runs.sqlite"))
