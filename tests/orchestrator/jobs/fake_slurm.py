"""A fake of SLURM's commands: jobs change only when a test says so. What it prints is checked against a real cluster.

As a module it makes the programs in a folder; as a program (under the name of a SLURM command) it plays that command
on the state file of that folder.
"""

import fcntl
import json
import os
import re
import stat
import sys
import time
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "sacctmgr", "srun")
WAITING, AT_WORK = ("PENDING",), ("RUNNING", "COMPLETING")


class FakeSlurm:
    """The fake as a test sees it: put `folder` first on PATH and move jobs by hand."""

    def __init__(self, folder, **settings):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        state = {"next_id": 1000, "jobs": {}, "calls": [], "accounting": True, "down": [], "max_array": 1001}
        (self.folder / "state.json").write_text(json.dumps(state | settings))
        (self.folder / "lock").touch()
        for name in PROGRAMS:
            program = self.folder / name
            program.write_text(f"#!{sys.executable}\n{Path(__file__).read_text()}")
            program.chmod(program.stat().st_mode | stat.S_IXUSR)

    @contextmanager
    def state(self):
        with opened(self.folder) as state:
            yield state

    def set(self, job, state, reason="None", exit_code="0:0"):
        """Move one job or array element to a state; what was running before leaves a record in the accounting."""
        with self.state() as all_:
            one = all_["jobs"][job]
            if one["state"] in AT_WORK + WAITING and state not in AT_WORK + WAITING:
                one["past"].append([state, exit_code, time.time()])
            one.update(
                state="PENDING" if state in ("REQUEUED", "PREEMPTED") else state, reason=reason, exit_code=exit_code
            )

    def forget(self, job):
        """The controller no longer lists a job; the accounting still does."""
        with self.state() as all_:
            all_["jobs"][job]["forgotten"] = True

    def down(self, *commands):
        with self.state() as all_:
            all_["down"] = list(commands)

    def calls(self, command):
        with self.state() as all_:
            return [call for call in all_["calls"] if call[0] == command]

    def jobs(self):
        with self.state() as all_:
            return list(all_["jobs"])


@contextmanager
def opened(folder):
    with (folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = json.loads((folder / "state.json").read_text())
        yield state
        (folder / "state.json").write_text(json.dumps(state))


def option(arguments, name, default=""):
    found = [argument.partition("=")[2] for argument in arguments if argument.startswith(f"--{name}=")]
    return found[-1] if found else default


def sbatch(state, arguments):
    if state.get("refuse") and state["next_id"] >= 1000 + state.get("refuse_after", 0):
        return (
            1,
            "",
            f"sbatch: error: {state['refuse']}\nsbatch: error: Batch job submission failed: {state['refuse']}\n",
        )
    script = Path(arguments[-1]).read_text()
    directives = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", script, re.MULTILINE))
    job, state["next_id"] = str(state["next_id"]), state["next_id"] + 1
    last = re.match(r"0-(\d+)", directives.get("array", ""))
    names = [f"{job}_{index}" for index in range(int(last[1]) + 1)] if last else [job]
    if last and int(last[1]) >= state["max_array"]:
        return 1, "", "sbatch: error: Batch job submission failed: Invalid job array specification\n"
    there = sum(one["state"] in WAITING + AT_WORK for one in state["jobs"].values())
    if there + len(names) > state.get("qos_submit", there + len(names)):
        policy = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
        error = f"sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: {policy}\n"
        return 1, "", error
    state["next_id"] += len(names) - 1
    fresh = {"state": "PENDING", "reason": "Priority", "comment": directives.get("comment", ""), "exit_code": "0:0"}
    state["jobs"] |= {name: fresh | {"past": [], "forgotten": False} for name in names}
    if state.get("lose_reply"):
        return 1, "", "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
    return 0, f"Submitted batch job {job}\n", ""


def squeue(state, arguments):
    lines = []
    for array, waiting in pending_arrays(state).items():
        ids = ",".join(waiting)
        one = state["jobs"][f"{array}_{waiting[0]}"]
        lines.append(f"{array}_[{ids}]|PENDING|{one['reason']}||{one['comment']}")
    for name, one in state["jobs"].items():
        if not one["forgotten"] and not ("_" in name and one["state"] == "PENDING"):
            node = "n1" if one["state"] in AT_WORK else ""
            lines.append(f"{name}|{one['state']}|{one['reason']}|{node}|{one['comment']}")
    return 0, "".join(f"{line}\n" for line in lines), ""


def pending_arrays(state):
    found = {}
    for name, one in state["jobs"].items():
        array, _, index = name.partition("_")
        if index and one["state"] == "PENDING" and not one["forgotten"]:
            found.setdefault(array, []).append(index)
    return found


def sacct(state, arguments):
    if not state["accounting"]:
        return 1, "", "Slurm accounting storage is disabled\n"
    wanted = option(arguments, "jobs").split(",")
    lines = []
    for name, one in state["jobs"].items():
        if name.partition("_")[0] not in wanted:
            continue
        lines += [f"{name}|{past}|{code}|{end:.0f}|n1|fake|" for past, code, end in one["past"]]
        if one["state"] in WAITING + AT_WORK:
            lines.append(f"{name}|{one['state']}|0:0|Unknown|n1|fake|")
    return 0, "".join(f"{line}\n" for line in lines), ""


def scancel(state, arguments):
    """Cancel.

    An element of an array that others still wait with leaves no trace, neither here nor in the accounting.
    """
    for name, one in state["jobs"].items():
        if {name, name.partition("_")[0]} & set(arguments) and one["state"] in WAITING + AT_WORK:
            waited, array = one["state"] in WAITING, name.partition("_")[0]
            one["state"] = "CANCELLED"
            if waited and pending_arrays(state).get(array):
                one["forgotten"] = True
            else:
                one["past"].append([f"CANCELLED by {os.getuid()}", "0:0", time.time()])
    return 0, "", ""


def scontrol(state, arguments):
    if arguments[:1] == ["ping"]:
        return 0, "Slurmctld(primary) at fake is UP\n", ""
    storage = "accounting_storage/slurmdbd" if state["accounting"] else "(null)"
    values = {"AccountingStorageType": storage, "ClusterName": "fake", "MaxArraySize": state["max_array"]}
    values |= {"MinJobAge": "300 sec", "SLURM_VERSION": "22.05.8"}
    return 0, "".join(f"{key:<24}= {value}\n" for key, value in values.items()), ""


def sacctmgr(state, arguments):
    return 0, f"{state.get('max_submit', '')}\n", ""


def srun(state, arguments):
    return 0, "", ""


def play(command, arguments, folder):
    with opened(folder) as state:
        state["calls"].append([command, *arguments])
        if command in state["down"]:
            return 1, "", f"{command}: error: Unable to contact slurm controller (connect failure)\n"
        return globals()[command](state, arguments)


if __name__ == "__main__":
    here = Path(sys.argv[0]).resolve()
    code, out, err = play(here.name, sys.argv[1:], here.parent)
    sys.stdout.write(out)
    sys.stderr.write(err)
    sys.exit(code)
