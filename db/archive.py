"""Databases that cannot be written: why that is so, and how they are read all the same. Knows SQLite's files only."""

import atexit
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

SMALLEST_ROOM = 256 << 10  # bytes: less than what one transaction of SQLite needs
LONGEST_PATH = 500  # bytes; SQLite takes 512, its endings included
READS_ONLY = "nothing new is read from the jobs and nothing is kept; what is known can be read"


def why_unwritable(path: Path) -> str:
    """Say why nothing can be written at `path`; empty where nothing is known to speak against it."""
    folder = path.parent
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    if status.f_flag & os.ST_RDONLY:
        return f"{folder} can only be read: it is mounted so"
    if free < SMALLEST_ROOM:
        return f"the disk of {folder} is full ({free:,} bytes free)"
    closed = next((place for place in (folder, path) if place.exists() and not os.access(place, os.W_OK)), None)
    return f"you may not write in {closed}" if closed else ""


def why_refused(path: Path, said: str) -> str:
    """Say why SQLite could not write, from what it said and where; empty where it is about something else."""
    if "disk is full" in said:
        return why_unwritable(path) or f"the disk of {path.parent} is full"
    is_about_the_place = any(words in said for words in ("disk I/O", "readonly", "unable to open"))
    return why_unwritable(path) if is_about_the_place else ""


def readable_address(path: Path, try_to_read: Callable[[str], object]) -> str:
    """Return the address under which a database that cannot be written can be read, all that was stored included.

    try_to_read: raises sqlite3.Error for an address under which it cannot. Changes that SQLite has not moved into the
    file yet are read from a copy; where there is no room for one, the file is read as it is.
    """
    log = path.with_name(path.name + "-wal")
    unmoved = log.exists() and log.stat().st_size > 0
    for place in (path, None) if unmoved else (path,):
        try:
            address = address_of(place or copied(path, log))
            try_to_read(address)
        except (sqlite3.Error, OSError):
            continue
        return address
    return address_of(path) + "&immutable=1"


def address_of(path: Path, mode: str = "ro") -> str:
    """Return the URI by which sqlite3 opens a file; mode `ro` never makes one."""
    return f"{path.as_uri()}?mode={mode}"


def copied(path: Path, log: Path) -> Path:
    """Copy a database and its log to a temporary folder, which goes when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="scalewright-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for file in (path, log):
        shutil.copyfile(file, folder / file.name)
    return folder / path.name
