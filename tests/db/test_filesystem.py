"""A database on a network mount never uses a write-ahead log, and says so."""

import sqlite3
from contextlib import closing

import pytest

from scalewright.db import filesystem
from scalewright.db.engine import open_database
from scalewright.db.errors import DbError
from scalewright.db.filesystem import NETWORK_FILESYSTEMS, filesystem_type, is_network


@pytest.fixture
def mounted(tmp_path, monkeypatch):
    """Pretend that a folder lies on a file system."""

    def mount(folder, kind):
        place = str(folder).replace(" ", "\\040")
        table = tmp_path / "mountinfo"
        lines = [
            "1 1 0:1 / / rw - ext4 /dev/sda rw",
            f"2 1 0:2 / {place} rw,relatime shared:7 - {kind} server:/export rw",
        ]
        table.write_text("\n".join(lines) + "\n")
        monkeypatch.setattr(filesystem, "MOUNTS", table)

    return mount


def journal_mode(file):
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute("PRAGMA journal_mode").fetchone()[0]


def test_on_a_disk_of_this_machine_readers_do_not_wait(tmp_path, mounted):
    mounted(tmp_path, "xfs")
    database = open_database(tmp_path / "runs.sqlite")
    assert journal_mode(tmp_path / "runs.sqlite") == "wal" and database.notice == ""


@pytest.mark.parametrize("kind", sorted(NETWORK_FILESYSTEMS))
def test_on_a_network_mount_there_is_no_write_ahead_log(tmp_path, mounted, kind):
    mounted(tmp_path, kind)
    database = open_database(tmp_path / "runs.sqlite")
    with database.write() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    assert f"network mount ({kind})" in database.notice and "no write-ahead log" in database.notice
    assert not (tmp_path / "runs.sqlite-wal").exists()


def test_a_database_that_moves_to_a_network_mount_gives_its_log_up(tmp_path, mounted):
    mounted(tmp_path / "elsewhere", "nfs4")
    open_database(tmp_path / "runs.sqlite").close()
    assert journal_mode(tmp_path / "runs.sqlite") == "wal"
    mounted(tmp_path, "nfs4")
    open_database(tmp_path / "runs.sqlite").close()
    assert journal_mode(tmp_path / "runs.sqlite") == "delete"


def test_a_log_that_is_in_use_on_a_network_mount_is_refused(tmp_path, mounted):
    mounted(tmp_path / "elsewhere", "nfs4")
    file = tmp_path / "runs.sqlite"
    open_database(file).close()
    user = sqlite3.connect(file)
    user.execute("SELECT count(*) FROM runs").fetchall()
    user.execute("BEGIN")
    user.execute("SELECT count(*) FROM runs").fetchall()
    mounted(tmp_path, "nfs4")
    with pytest.raises((DbError, Exception), match="network mount|locked"):
        open_database(file)
    user.close()


def test_the_nearest_mount_counts_and_names_with_spaces_are_read(tmp_path, mounted):
    deep = tmp_path / "shared folder" / "deep"
    deep.mkdir(parents=True)
    mounted(tmp_path / "shared folder", "lustre")
    assert filesystem_type(deep / "runs.sqlite") == "lustre" and is_network(deep)
    assert filesystem_type(tmp_path) == "ext4" and not is_network(tmp_path)


def test_without_a_table_of_mounts_a_disk_counts_as_local(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystem, "MOUNTS", tmp_path / "none")
    assert not is_network(tmp_path)
