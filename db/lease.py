"""Who may write results: one holder at a time, for a while. A holder that died or whose clock went mad is replaced."""

import os
import socket
import time
import uuid
from dataclasses import dataclass, field

from sqlalchemy import Connection, delete, select, update

from scalewright.db.engine import Database
from scalewright.db.rows import upsert
from scalewright.db.schema import leases

LEASE_S = 30.0
NAME = "sync"


class LeaseLostError(RuntimeError):
    """Say that another process took the lease over; the transaction must not be committed."""


@dataclass(frozen=True)
class Owner:
    """A process that asks for the lease; the token tells two processes of the same number apart."""

    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __str__(self) -> str:
        return f"{self.host} {self.pid} {self.token}"


def acquire(db: Database, owner: Owner, *, now: float | None = None) -> str:
    """Take the lease; return "" when it is `owner`'s, else who holds it, as a sentence."""
    moment = time.time() if now is None else now
    with db.write() as connection:
        held = connection.execute(select(leases).where(leases.c.name == NAME)).first()
        if held is not None and held.owner != str(owner) and is_alive(held.owner, held.expires_at, owner, moment):
            host, pid, _ = held.owner.split(" ")
            return f"another sync is at work (process {pid} on {host})"
        row = {"name": NAME, "owner": str(owner), "expires_at": moment + LEASE_S}
        upsert(connection, leases, [row], ["name"], change=("owner", "expires_at"))
    return ""


def is_alive(holder: str, expires_at: float, asker: Owner, now: float) -> bool:
    """Tell whether a lease still holds: not expired, not from a clock far ahead, and its process not seen dead."""
    if not now < expires_at <= now + 2 * LEASE_S:
        return False
    host, pid, _ = holder.split(" ")
    return host != asker.host or _process_exists(int(pid))


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def renew(connection: Connection, owner: Owner) -> None:
    """Prolong the lease within the transaction that writes results; raises LeaseLostError where it is not ours now."""
    mine = (leases.c.name == NAME) & (leases.c.owner == str(owner))
    renewed = connection.execute(update(leases).where(mine).values(expires_at=time.time() + LEASE_S))
    if renewed.rowcount != 1:
        raise LeaseLostError("another process took over the sync lease")


def release(db: Database, owner: Owner) -> None:
    """Give the lease up; nothing happens where another owner holds it."""
    with db.write() as connection:
        connection.execute(delete(leases).where((leases.c.name == NAME) & (leases.c.owner == str(owner))))
