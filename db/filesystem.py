"""Which file system a path lies on, and whether SQLite's shared memory works there. Knows /proc/self/mountinfo only."""

import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
NETWORK_FILESYSTEMS = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "lustre",
        "gpfs",
        "mmfs",
        "beegfs",
        "beegfs_nodev",
        "ceph",
        "fuse.ceph",
        "fuse.sshfs",
        "fuse.glusterfs",
        "glusterfs",
        "afs",
        "9p",
        "panfs",
        "pvfs2",
        "orangefs",
        "ocfs2",
        "gfs2",
        "wekafs",
        "vastfs",
        "daos",
        "fuse.daos",
        "fuse.juicefs",
        "fuse.s3fs",
        "fuse.rclone",
    ]
)


def filesystem_type(path: Path) -> str:
    """Name the file system of the nearest existing folder of `path`, as the kernel does; "" where it cannot be told."""
    if not MOUNTS.exists():
        return ""
    place = path.resolve()
    best = ("", "")
    for line in MOUNTS.read_text(errors="replace").splitlines():
        fields, _, tail = line.partition(" - ")
        mount = unescaped(fields.split()[4])
        if place.is_relative_to(mount) and len(mount) >= len(best[0]):
            best = (mount, tail.split()[0])
    return best[1]


def unescaped(mount: str) -> str:
    r"""Turn the kernel's octal escapes (`\040` for a space) into characters."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), mount)


def is_network(path: Path) -> bool:
    """Tell whether several hosts may see `path`, so that SQLite must not keep its index of the log in shared memory."""
    return filesystem_type(path) in NETWORK_FILESYSTEMS
