"""A SLURM cluster of this machine alone, for tests: munged, slurmctld, slurmds and, for sacct, mariadbd and slurmdbd.

Everything listens on loopback and lies in one short folder; nothing is installed, nothing outside the folder is
changed.
"""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "sinfo")
ACCOUNTING_PROGRAMS = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db", "mariadb")
PACKAGES = "slurmctld slurmd munge slurm-client slurmdbd mariadb-server-core mariadb-client-core"
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
PATIENCE_S = 150.0
N_PORTS = 8  # controller, database and one a node
LEAKY = ("SLURM", "SBATCH", "SRUN", "SACCT", "SQUEUE", "SINFO", "SALLOC", "SUBMITIT")


def why_not(*, accounting: bool = True) -> str | None:
    """Say why no cluster can be started here, or None."""
    path = os.environ["PATH"] + ":" + SYSTEM_PATH
    wanted = PROGRAMS + (ACCOUNTING_PROGRAMS if accounting else ())
    missing = [program for program in wanted if shutil.which(program, path=path) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: {PACKAGES})"
    address = own_address()
    if not address.startswith("127."):  # with NoInAddrAny the daemons listen where the host's own name points
        return f"this host's name resolves to {address}, not to loopback"
    return None


def own_address() -> str:
    try:
        return socket.gethostbyname(os.uname().nodename)
    except OSError:
        return "nothing"


def wait_until(condition: Callable[[], bool], seconds: float, what: str, tick_s: float = 0.05) -> None:
    """Wait for a condition, at most `seconds`; a test that waits in vain fails with `what`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(tick_s)


@dataclass
class Cluster:
    """A running cluster; use `running_cluster`. Partition `low` may be preempted by `high`."""

    folder: Path
    n_nodes: int = 3
    n_cpus: int = 4
    memory_mb: int = 4000
    accounting: bool = True
    settings: dict[str, str] = field(default_factory=dict)
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    port: int = 0
    database_dir: Path | None = None

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def nodes(self) -> list[str]:
        return [f"n{number}" for number in range(1, self.n_nodes + 1)]

    def environment(self) -> dict[str, str]:
        """The environment of the daemons and of who talks to them; a surrounding job must not leak in."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(LEAKY)}
        return clean | {"SLURM_CONF": str(self.conf), "PATH": f"{os.environ['PATH']}:{SYSTEM_PATH}"}

    # --- start and stop ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        for name in ("log", "run", "state", "spool", "munge"):
            (self.folder / name).mkdir(parents=True)
        self.port = free_ports()
        self.write_conf()
        self.start_munge()
        if self.accounting:
            self.start_database()
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        wait_until(lambda: len(self.usable_nodes()) == self.n_nodes, PATIENCE_S, "the nodes")
        if self.accounting:
            wait_until(
                lambda: bool(self.say("sacctmgr", "-nP", "show", "cluster", "format=controlport").strip("0\n")),
                PATIENCE_S,
                "sacct",
            )

    def start_controller(self) -> None:
        self.daemon("slurmctld", ["slurmctld", "-D", "-i", "-f", str(self.conf)])
        wait_until(self.controller_is_up, PATIENCE_S, "slurmctld")

    def stop(self) -> None:
        if "slurmctld" in self.daemons:
            self.run("scancel", f"--user={os.getuid()}")
        for name in [*(f"slurmd-{node}" for node in self.nodes), "slurmctld"]:
            self.end_daemon(name)
        self.kill_jobs()
        for name in ("slurmdbd", "mariadbd", "munged"):
            self.end_daemon(name)
        if self.database_dir:
            shutil.rmtree(self.database_dir, ignore_errors=True)

    def remove(self) -> None:
        self.stop()
        if "KEEP_SLURM" not in os.environ:
            shutil.rmtree(self.folder, ignore_errors=True)

    def daemon(self, name: str, command: list[str], **variables: str) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self.environment() | variables,
            )

    def end_daemon(self, name: str, signum: signal.Signals = signal.SIGTERM) -> None:
        process = self.daemons.pop(name, None)
        if process is None:
            return
        process.send_signal(signum)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start_munge(self) -> None:
        key = self.folder / "munge" / "key"
        key.write_bytes(random.randbytes(128))
        key.chmod(0o400)
        (self.folder / "munge").chmod(0o755)
        files = [f"--{name}-file={self.folder}/munge/{name}" for name in ("key", "pid", "seed", "log")]
        self.daemon("munged", ["munged", "--foreground", *files, f"--socket={self.munge_socket}", "--origin=127.0.0.1"])
        wait_until(lambda: self.run("munge", "-n", "-S", str(self.munge_socket)).returncode == 0, PATIENCE_S, "munged")

    @property
    def munge_socket(self) -> Path:
        return self.folder / "munge" / "sock"

    def start_database(self) -> None:
        """mariadbd on a socket of its own, in memory where that is possible: ten times faster than on a disk."""
        shared = Path("/dev/shm")
        self.database_dir = Path(tempfile.mkdtemp(prefix="slurmdb-", dir=shared if shared.is_dir() else self.folder))
        data, sock = self.database_dir / "data", self.database_dir / "sock"
        user = self.say("id", "-un").strip()
        options = [
            "--no-defaults",
            f"--datadir={data}",
            f"--user={user}",
            "--innodb-log-file-size=4M",
            "--innodb-doublewrite=0",
        ]
        options += ["--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"]
        installed = self.run(
            "mariadb-install-db",
            *options,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
        )
        assert installed.returncode == 0, installed.stderr
        serve = [
            f"--socket={sock}",
            f"--pid-file={self.database_dir}/pid",
            "--skip-networking",
            "--performance-schema=OFF",
        ]
        self.daemon("mariadbd", ["mariadbd", *options, *serve, "--innodb-lock-wait-timeout=900"])
        wait_until(
            lambda: (
                self.run("mariadb", "--no-defaults", "-S", str(sock), "-u", "root", "-e", "select 1").returncode == 0
            ),
            PATIENCE_S,
            "mariadbd",
        )
        self.daemon("slurmdbd", ["slurmdbd", "-D"], MYSQL_UNIX_PORT=str(sock))
        wait_until(lambda: self.run("sacctmgr", "-n", "show", "cluster").returncode == 0, PATIENCE_S, "slurmdbd")

    # --- configuration -----------------------------------------------------------------------------------------------

    def write_conf(self) -> None:
        lines = [f"{key}={value}" for key, value in (self.conf_values() | self.settings).items()]
        ports = ",".join(str(self.port + 2 + index) for index in range(self.n_nodes))
        lines.append(
            f"NodeName=n[1-{self.n_nodes}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{ports}] "
            f"CPUs={self.n_cpus} RealMemory={self.memory_mb} State=UNKNOWN"
        )
        for name, rest in {
            "low": "Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=8",
            "high": "PriorityTier=10 PreemptMode=OFF",
        }.items():
            lines.append(f"PartitionName={name} Nodes=ALL MaxTime=INFINITE DefaultTime=60 State=UP {rest}")
        self.conf.write_text("\n".join(lines) + "\n")
        version = self.say("slurmctld", "-V").split()[-1]
        plugin = (
            "cgroup/v1" if int(version.partition(".")[0]) < 23 else "disabled"
        )  # slurmd loads one though nothing uses it
        (self.folder / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\n")
        if self.accounting:
            self.write_database_conf()

    def conf_values(self) -> dict[str, str]:
        user = self.say("id", "-un").strip()
        values = {
            "ClusterName": "test",
            "SlurmctldHost": f"{os.uname().nodename.partition('.')[0]}(127.0.0.1)",
            "SlurmUser": user,
            "SlurmdUser": user,
            "SlurmctldPort": str(self.port),
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self.munge_socket},cred_expire=5",  # a requeued job waits for this long and a second
            "CommunicationParameters": "NoCtldInAddrAny,NoInAddrAny",
            "StateSaveLocation": f"{self.folder}/state",
            "SlurmdSpoolDir": f"{self.folder}/spool/%n",
            "SlurmctldPidFile": f"{self.folder}/run/slurmctld.pid",
            "SlurmdPidFile": f"{self.folder}/run/slurmd-%n.pid",
            "SlurmctldLogFile": f"{self.folder}/log/slurmctld.log",
            "SlurmdLogFile": f"{self.folder}/log/slurmd-%n.log",
            "MailProg": "/bin/true",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SwitchType": "switch/none",
            "MpiDefault": "none",
            "JobAcctGatherType": "jobacct_gather/none",
            "PropagateResourceLimits": "NONE",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CPU_Memory",
            "DefMemPerCPU": str(self.memory_mb // self.n_cpus),
            "SlurmdParameters": "config_overrides",  # nodes claim more processors than this machine has
            "SchedulerType": "sched/backfill",
            "SchedulerParameters": "batch_sched_delay=0,sched_interval=2,bf_interval=2,sched_min_interval=100000",
            "PriorityType": "priority/basic",
            "PreemptType": "preempt/partition_prio",
            "PreemptMode": "REQUEUE",
            "SlurmctldParameters": "preempt_send_user_signal",
            "ReturnToService": "2",
            "KillWait": "2",
            "SlurmdTimeout": "10",
            "SlurmctldTimeout": "10",
            "MessageTimeout": "5",
            "MinJobAge": "300",
            "FirstJobId": str(1000 + int(time.time()) % 60_000_000),  # ids of two clusters in a row must differ
            "MaxArraySize": "51",
        }
        if self.accounting:
            values |= {
                "AccountingStorageType": "accounting_storage/slurmdbd",
                "AccountingStorageHost": "localhost",
                "AccountingStoragePort": str(self.port + 1),
                "AccountingStoragePass": str(self.munge_socket),
            }
        return values

    def write_database_conf(self) -> None:
        values = {
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self.munge_socket}",
            "DbdHost": "localhost",
            "DbdAddr": "127.0.0.1",
            "DbdPort": str(self.port + 1),
            "CommunicationParameters": "NoInAddrAny",
            "SlurmUser": self.say("id", "-un").strip(),
            "LogFile": f"{self.folder}/log/slurmdbd.log",
            "PidFile": f"{self.folder}/run/slurmdbd.pid",
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "localhost",
            "StorageUser": "root",
            "StorageLoc": "slurm_acct_db",
        }
        path = self.folder / "slurmdbd.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        path.chmod(0o600)

    # --- talking to it -----------------------------------------------------------------------------------------------

    def run(self, *command: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, env=self.environment(), timeout=timeout_s, check=False
        )

    def say(self, *command: str) -> str:
        return self.run(*command).stdout

    def controller_is_up(self) -> bool:
        return "is UP" in self.say("scontrol", "ping")

    def usable_nodes(self) -> list[str]:
        lines = self.say("sinfo", "-h", "-N", "-p", "low", "-o", "%N %t").splitlines()
        return [line.split()[0] for line in lines if re.search(r" (idle|mix|alloc|comp)$", line)]

    # --- what goes wrong with nodes ----------------------------------------------------------------------------------

    def start_node(self, node: str) -> None:
        (self.folder / "spool" / node).mkdir(parents=True, exist_ok=True)
        self.daemon(f"slurmd-{node}", ["slurmd", "-D", "-N", node, "-f", str(self.conf)])

    def lose_node(self, node: str) -> None:
        """The machine is gone: its daemon and every process of its jobs die at once, and the controller is told."""
        self.end_daemon(f"slurmd-{node}", signal.SIGKILL)
        self.kill_jobs(node)
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")

    def bring_back(self, node: str) -> None:
        self.start_node(node)
        wait_until(lambda: node in self.usable_nodes(), PATIENCE_S, f"node {node}")

    def kill_jobs(self, node: str | None = None) -> None:
        """Kill every process of the cluster's jobs, the supervising slurmstepds first stopped so that none reports."""
        for _ in range(5):
            pids = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self.is_of_a_job(pid, node)]
            for signum in (signal.SIGSTOP, signal.SIGKILL):
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signum)
            if not pids:
                return
            time.sleep(0.05)

    def is_of_a_job(self, pid: int, node: str | None) -> bool:
        """Tell a job's process by its environment, and a slurmstepd by the log of its slurmd that it holds open."""
        process = Path(f"/proc/{pid}")
        with suppress(OSError):
            if Path(os.readlink(process / "exe")).name.startswith("slurmstepd"):
                logs = [os.readlink(link) for link in (process / "fd").iterdir()]
                return any(re.fullmatch(rf"{self.folder}/log/slurmd-{node or 'n[0-9]+'}.log", log) for log in logs)
            variables = (process / "environ").read_bytes().split(b"\0")
            ours = f"SLURM_CONF={self.conf}".encode() in variables and any(
                v.startswith(b"SLURM_JOB_ID=") for v in variables
            )
            return ours and (node is None or f"SLURMD_NODENAME={node}".encode() in variables)
        return False


def free_ports() -> int:
    """Find a block of free ports on loopback, below those that the system hands out."""
    for _ in range(100):
        first = random.SystemRandom().randrange(
            20000, 31000
        )  # not the seed of a test: two clusters would take the same
        if all(is_free(port) for port in range(first, first + N_PORTS)):
            return first
    raise RuntimeError("no block of free ports")


def is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@contextmanager
def running_cluster(**options: object) -> Iterator[Cluster]:
    """Start a cluster in a short folder of its own (sockets' paths end at 108 bytes) and remove it afterwards."""
    cluster = started(**options)
    try:
        yield cluster
    finally:
        cluster.remove()


def started(*, again: bool = True, **options: object) -> Cluster:
    """Start a cluster; where its daemons do not find each other on a crowded machine, once more from the beginning."""
    folder = Path(tempfile.mkdtemp(prefix="sw-slurm-"))
    folder.chmod(0o755)
    cluster = Cluster(folder, **options)  # type: ignore[arg-type]
    try:
        cluster.start()
    except BaseException as error:
        cluster.remove()
        if again and isinstance(error, AssertionError):
            return started(again=False, **options)
        raise
    return cluster
