"""Code that was submitted is the code that runs."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scalewright.orchestrator.code import code_root
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.jobs.snapshot import NAMESPACE, PACKAGES, check_snapshot, take_snapshot


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "source"
    (root / NAMESPACE).mkdir(parents=True)
    (root / NAMESPACE / "__init__.py").write_text("")
    for package in PACKAGES:
        (root / package).mkdir()
        (root / package / "__init__.py").write_text(f"NAME = '{package}'\n")
        (root / NAMESPACE / package).symlink_to(Path("..") / package)
    (root / "orchestrator" / "data" / "corpus").mkdir(parents=True)
    (root / "orchestrator" / "data" / "corpus" / "text.xz").write_bytes(b"large")
    (root / "models" / "__pycache__").mkdir()
    (root / "models" / "__pycache__" / "x.pyc").write_bytes(b"stale")
    return root


def git(root, *arguments):
    quiet = ["-c", "user.email=a@b", "-c", "user.name=a", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *quiet, *arguments], cwd=root, check=True, capture_output=True)


def test_the_same_code_is_copied_once_and_other_code_elsewhere(source, tmp_path):
    first = take_snapshot(tmp_path / "snapshots", source)
    assert take_snapshot(tmp_path / "snapshots", source) == first
    (source / "models" / "__init__.py").write_text("NAME = 'other'\n")
    second = take_snapshot(tmp_path / "snapshots", source)
    assert second.content != first.content
    assert (
        "NAME = 'models'" in (tmp_path / "snapshots" / first.content / NAMESPACE / "models" / "__init__.py").read_text()
    )


def test_writers_at_the_same_time_leave_one_whole_copy(source, tmp_path):
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: take_snapshot(tmp_path / "snapshots", source), range(32)))
    assert {one.content for one in taken} == {taken[0].content}
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == [taken[0].content]


def test_neither_the_corpus_nor_caches_are_copied(source, tmp_path):
    snapshot = take_snapshot(tmp_path / "snapshots", source)
    names = {path.name for path in (tmp_path / "snapshots" / snapshot.content).rglob("*") if path.is_file()}
    assert names == {"__init__.py", "snapshot.json"}
    assert snapshot.n_files == len(PACKAGES) + 1


def test_changed_and_untracked_files_are_included_and_said(source, tmp_path):
    git(source, "init", "-q")
    git(source, "add", ".")
    git(source, "commit", "-q", "-m", "x")
    clean = take_snapshot(tmp_path / "snapshots", source)
    assert clean.commit and not clean.dirty and not clean.untracked
    (source / "db" / "__init__.py").write_text("changed\n")
    (source / "db" / "new.py").write_text("new\n")
    snapshot = take_snapshot(tmp_path / "snapshots", source)
    assert snapshot.commit == clean.commit and snapshot.dirty and snapshot.untracked == ["db/new.py"]
    assert "uncommitted changes" in snapshot.describe() and "db/new.py" in snapshot.describe()
    assert (tmp_path / "snapshots" / snapshot.content / NAMESPACE / "db" / "new.py").read_text() == "new\n"


def test_a_job_refuses_code_that_changed_or_that_came_from_elsewhere(source, tmp_path):
    snapshot = take_snapshot(tmp_path / "snapshots", source)
    root = tmp_path / "snapshots" / snapshot.content
    with pytest.raises(UserError, match="imported its code from"):
        check_snapshot(root, snapshot.content)
    (root / NAMESPACE / "fitting" / "__init__.py").write_text("tampered\n")
    with pytest.raises(UserError, match="changed after it was submitted"):
        check_snapshot(root, snapshot.content)


def test_this_code_passes_its_own_check():
    from scalewright.orchestrator.jobs import snapshot

    files = {name: (code_root() / name).read_bytes() for name in snapshot.code_files(code_root())}
    check_snapshot(code_root(), snapshot.content_hash(files))
