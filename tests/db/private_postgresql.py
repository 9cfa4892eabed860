"""A PostgreSQL server of the tests' own: in a temporary folder, on a unix socket, as a user that is not root."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

DEBIAN = Path("/usr/lib/postgresql")
SETTINGS = "-c listen_addresses='' -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=60"


def programs() -> Path | None:
    """Find the folder of initdb and pg_ctl: Debian's newest, else that on the PATH."""
    versions = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = str(versions[-1]) if versions else shutil.which("initdb")
    return Path(found).parent if found else None


def other_user() -> str | None:
    """PostgreSQL refuses to run as root: name the user to run it as, None for ourselves."""
    if os.geteuid() != 0:
        return None
    names = {user.pw_name for user in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Run a server and yield the URL of its database `postgres`."""
    folder, user = Path(tempfile.mkdtemp(prefix="pg-")), other_user()
    if user is not None:
        shutil.chown(folder, user)
    name = user or pwd.getpwuid(os.geteuid()).pw_name
    data, bin_dir = folder / "data", programs()
    assert bin_dir is not None
    run(user, [f"{bin_dir}/initdb", "-D", str(data), "-A", "trust", "-E", "UTF8", "--no-locale", "-N"])
    options = f"{SETTINGS} -k {folder}"
    run(user, [f"{bin_dir}/pg_ctl", "-D", str(data), "-o", options, "-l", str(folder / "log"), "-w", "start"])
    try:
        yield f"postgresql+psycopg://{name}@/postgres?host={folder}"
    finally:
        run(user, [f"{bin_dir}/pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop"])
        shutil.rmtree(folder, ignore_errors=True)


def run(user: str | None, command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=user, cwd="/", stdin=subprocess.DEVNULL)
