"""The code that jobs run: a content-addressed copy of the four packages. Knows files and git, nothing of runs."""

import hashlib
import shutil
import subprocess
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from scalewright.orchestrator.code import code_root
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import usable, write_json

NAMESPACE = "scalewright"
PACKAGES = ("orchestrator", "models", "fitting", "db")
LEFT_OUT_FOLDERS = {"__pycache__", "corpus"}
LEFT_OUT_SUFFIXES = {".pyc", ".pyo", ".tmp", ".swp"}
HASH_CHARACTERS = 16
RECORD = "snapshot.json"
MEND = "remove it, then: scalewright retry (for the runs that failed because of it), and submit again"
NAMED_FILES = 3


@dataclass(frozen=True)
class Snapshot:
    """A frozen copy of the code: where it lies, the hash of its content, and how it differs from its commit."""

    root: str
    content: str
    commit: str | None
    dirty: bool
    untracked: list[str]
    n_files: int

    def describe(self) -> str:
        """Say in one line which code this is."""
        parts = [f"code {self.content}"]
        parts.append(f"of commit {self.commit[:10]}" if self.commit else "outside version control")
        if self.dirty:
            parts.append("with uncommitted changes")
        if self.untracked:
            names = ", ".join(self.untracked[:NAMED_FILES]) + (", ..." if len(self.untracked) > NAMED_FILES else "")
            parts.append(f"and {len(self.untracked)} untracked files ({names})")
        return " ".join(parts)


def take_snapshot(snapshots_dir: Path, source: Path | None = None) -> Snapshot:
    """Copy the packages into `snapshots_dir/<content hash>`, or find that copy there already.

    Raises UserError when the copy found there was changed.
    """
    source = source or code_root()
    files = {relative: (source / relative).read_bytes() for relative in code_files(source)}
    content = content_hash(files)
    root = snapshots_dir / content
    if not root.exists():
        write_copy(files, root, _describe_source(source, root, content, len(files)))
    elif _content_of(root) != content:
        raise UserError(f"{root}: this copy of the code was changed; {MEND}")
    record = usable(root / RECORD, Snapshot, content=content)
    if record is None:
        record = _describe_source(source, root, content, len(files))
        write_json(root / RECORD, record)
    return replace(record, root=str(root))  # the folder may have been copied or moved with its study


def _content_of(root: Path) -> str:
    return content_hash({relative: (root / relative).read_bytes() for relative in code_files(root)})


def code_files(source: Path) -> list[str]:
    """List the packages' files, sorted, relative to `source`: tracked, changed and untracked alike."""
    home = source / NAMESPACE
    found = (*home.glob("*"), *(path for package in PACKAGES for path in (home / package).rglob("*")))
    kept = (path.relative_to(source) for path in found if path.is_file() and path.suffix not in LEFT_OUT_SUFFIXES)
    return sorted(path.as_posix() for path in kept if not LEFT_OUT_FOLDERS & set(path.parts))


def content_hash(files: dict[str, bytes]) -> str:
    """Hash files by path, length and bytes, in the order of their paths."""
    digest = hashlib.sha256()
    for relative in sorted(files):
        digest.update(f"{relative}\0{len(files[relative])}\0".encode() + files[relative])
    return digest.hexdigest()[:HASH_CHARACTERS]


def write_copy(files: dict[str, bytes], root: Path, record: Snapshot) -> None:
    """Write the copy under a temporary name and rename it; of two writers at once, one wins and both are right."""
    temporary = root.with_name(f".{root.name}.{uuid.uuid4().hex}.tmp")
    for relative, text in files.items():
        path = temporary / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    write_json(temporary / RECORD, record, durable=False)
    try:
        temporary.rename(root)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not root.exists():
            raise


def _describe_source(source: Path, root: Path, content: str, n_files: int) -> Snapshot:
    commit = git(source, "rev-parse", "HEAD")
    places = ("--untracked-files=all", "--", NAMESPACE, *PACKAGES)
    changes = (git(source, "status", "--porcelain", *places) or "").splitlines()
    untracked = [line[3:] for line in changes if line.startswith("??")]
    dirty = any(not line.startswith("??") for line in changes)
    return Snapshot(str(root), content, commit, dirty, untracked, n_files)


def git(folder: Path, *arguments: str) -> str | None:
    """Ask git about `folder`; None where git, or a repository with these packages at its root, is missing."""
    if not (folder / ".git").exists():
        return None
    try:
        reply = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return reply.stdout.rstrip("\n") if reply.returncode == 0 else None


def check_snapshot(root: Path, expected: str) -> None:
    """Refuse to run code that is not what was submitted.

    Raises UserError when the copy changed since, or when this process imported its packages from elsewhere.
    """
    if _content_of(root) != expected:
        raise UserError(f"{root}: the code changed after it was submitted (expected content {expected}); {MEND}")
    if code_root() != root.resolve():
        raise UserError(f"this job imported its code from {code_root()}, not from its snapshot {root}")
