"""Studies in odd places: a full disk, a mount for reading only, a path that SLURM reads its own way."""

import os
import re
import shutil
import subprocess
import time
from contextlib import contextmanager

import pytest
from tiny_study import YAML, write_study

from scalewright.orchestrator.cli import run as scalewright
from scalewright.orchestrator.jobs.executors.local import pause_jobs
from scalewright.orchestrator.study import Study

pytestmark = pytest.mark.xdist_group("local-jobs")
SIZE = 12 << 20  # bytes


@pytest.fixture
def small_disk(tmp_path, monkeypatch):
    """A file system of its own with a study on it; skipped where nothing may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    write_study(place)
    monkeypatch.chdir(place)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    yield place
    pause_jobs(Study.at(place), wait_s=20.0)
    monkeypatch.undo()
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def full(place):
    """Leave no byte free."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for n_bytes in (1 << 20, 4096, 1):
            try:
                while file.write(bytes(n_bytes)):
                    pass
            except OSError:
                continue
    assert os.statvfs(place).f_bavail == 0
    yield
    filler.unlink()


def say(capsys, *verb):
    capsys.readouterr()
    code = scalewright(list(verb))
    said = "".join(capsys.readouterr())
    assert "Traceback" not in said
    return code, said


def wait_for(condition, what):
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.2)


def test_runs_live_through_a_full_disk_and_end_when_there_is_room_again(small_disk, capsys):
    assert say(capsys, "plan")[0] == 0
    ids = [line.split(",")[0] for line in say(capsys, "runs", "--csv")[1].splitlines()[1:]]
    for run_id in ids:
        (small_disk / "runs" / run_id).mkdir(parents=True)
        (small_disk / "runs" / run_id / "debug.json").write_text('{"steps": 80, "step_s": 0.05}')
    assert say(capsys, "submit", "--payload", "debug", "--max-parallel", "1")[0] == 0
    wait_for(lambda: list(small_disk.glob("runs/*/journal.a1.jsonl")), "a run to start")
    with full(small_disk):
        for verb in (["status"], ["runs"], ["show", ids[0]], ["query", "select count(*) from runs"], ["db", "check"]):
            code, said = say(capsys, *verb)
            assert code == 0, (verb, said)
        code, said = say(capsys, "sync")
        assert (code, "Traceback" in said) == (1, False)
        assert f"the disk of {small_disk} is full" in said and "what is known can be read" in said
        time.sleep(2.0)  # so that the job writes in vain meanwhile
    wait_for(lambda: "4/4 runs done" in say(capsys, "status")[1], "the runs to end")
    assert "completed" in say(capsys, "runs")[1]


def test_a_study_on_a_mount_for_reading_only_can_be_read(small_disk, capsys):
    assert say(capsys, "submit", "--executor", "debug", "--payload", "debug")[0] == 0
    run = next((small_disk / "runs").iterdir()).name
    kept = say(capsys, "runs", "--csv")[1]
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    try:
        for verb in (["status"], ["show", run], ["query", "select count(*) from runs"], ["db", "check"]):
            assert say(capsys, *verb)[0] == 0, verb
        assert kept in say(capsys, "runs", "--csv")[1]
        for verb in (["sync"], ["submit"], ["cancel", run]):
            code, said = say(capsys, *verb)
            assert code == 1 and f"{small_disk} can only be read: it is mounted so" in said
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)


def test_a_study_that_can_only_be_read_is_reported_into_the_folder_of_who_asks(
    small_disk, tmp_path, monkeypatch, capsys
):
    points = [f"{n},{d},{1.7 + 400 / n**0.34 + 410 / d**0.28}" for n in (1e6, 4e6, 1.6e7) for d in (2e7, 8e7, 3.2e8)]
    (small_disk / "points.csv").write_text("\n".join(["n_params,n_tokens,loss", *points]))
    (small_disk / "paper.yaml").write_text(YAML.replace("tiny", "paper"))
    assert say(capsys, "import", "points.csv", "--as", "paper")[0] == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    try:
        code, said = say(capsys, "report", "paper")
        assert code == 1 and f"{small_disk}/figures/paper: no figure can be written there; ask from a folder" in said
        monkeypatch.chdir(tmp_path)
        for verb in ("report", "figures"):
            code, said = say(capsys, verb, str(small_disk / "paper.yaml"))
            assert code == 0, said
            assert f"{tmp_path}/figures/paper/index.html" in said
        assert (tmp_path / "figures" / "paper" / "index.html").stat().st_size > 1000
        assert say(capsys, "fit", str(small_disk / "paper.yaml"), "--law", "chinchilla")[0] == 0
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)


def test_a_disk_too_small_for_the_shards_says_how_much_more_is_enough(small_disk, tmp_path, capsys):
    documents = ["ein Satz mit Umlauten: äöü. " * 30 + str(n) for n in range(9000)]
    text = tmp_path / "large.txt"
    text.write_text("\n\n".join(documents))
    free = shutil.disk_usage(small_disk).free
    verb = ["data", "prepare", "--corpus", str(text), "--tokenizer", "bytes", "--out", str(small_disk / "more")]
    code, said = say(capsys, *verb)
    assert code == 1 and f" MiB and {free / 2**20:.1f} MiB are free" in said
    need, more = (float(n) for n in re.search(r"the shards take ([\d.]+) .* free ([\d.]+) MiB more", said).groups())
    enough = SIZE + (more + 0.2) * 2**20  # page by page
    subprocess.run(["mount", "-o", f"remount,size={enough:.0f}", str(small_disk)], check=True)
    assert say(capsys, *verb)[0] == 0
    n_bytes = sum(path.stat().st_size for path in (small_disk / "more").glob("*/*.bin"))
    assert n_bytes / 2**20 == pytest.approx(need, abs=0.051)  # said to a tenth


@pytest.mark.parametrize("name", ["a%jb", "a\\b"])
def test_a_path_that_the_log_files_cannot_have_is_refused_by_name(tmp_path, monkeypatch, capsys, name):
    write_study(tmp_path / name)
    monkeypatch.chdir(tmp_path / name)
    code, said = say(capsys, "submit", "--payload", "debug")
    assert code == 1 and f"a study with {name[1]} in its path cannot be submitted" in said
    assert not (tmp_path / name / "jobs").exists()
    assert say(capsys, "submit", "--payload", "debug", "--executor", "debug")[0] == 0


def test_a_path_longer_than_sqlite_takes_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    folder = tmp_path.joinpath(*["x" * 195] * 4)
    write_study(folder)
    monkeypatch.chdir(folder)
    for verb in ("plan", "submit"):
        code, said = say(capsys, verb)
        assert code == 1 and "more than SQLite takes as a path" in said and "SCALEWRIGHT_DB" in said
