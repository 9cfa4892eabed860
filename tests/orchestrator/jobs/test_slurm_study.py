"""A study of a YAML on the fake cluster, as a person types it: what happens while its jobs wait and run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_study import YAML, write_study

from scalewright.orchestrator.cli import run as scalewright

sys.path.insert(0, str(Path(__file__).parent))
from fake_slurm import FakeSlurm  # noqa: E402

ON_SLURM = "executor: slurm\nresources: {profiles: {default: {pack: 1, mem: 1G, time: 30min}}}\n"
GARBAGE = [
    "lorem ipsum",
    "<html>502</html>",
    "1000_0|RUNNING",
    "|||||",
    "1000_[0-|PENDING|x||",
    "1000_0|NEW|x||",
    "\xff",
]


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    one = FakeSlurm(tmp_path / "fake")
    monkeypatch.setenv("PATH", f"{one.folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    write_study(tmp_path / "study", YAML + ON_SLURM)
    monkeypatch.chdir(tmp_path / "study")
    return one


@pytest.fixture
def say(capsys):
    def verb(*words, code=0):
        capsys.readouterr()
        found = scalewright(list(words))
        said = "".join(capsys.readouterr())
        assert found == code and "Traceback" not in said, said
        return said

    return verb


def reasons(say):
    said = say("runs", "--all", "--json")
    rows, _ = json.JSONDecoder().raw_decode(said[said.index("[") :])
    return {row["run_id"]: (row["state"], row["state_reason"]) for row in rows}


def test_runs_that_an_edited_yaml_leaves_in_jobs_are_said_until_they_are_cancelled(slurm, say):
    say("submit", "--payload", "debug")
    yaml = Path("experiments.yaml")
    yaml.write_text(yaml.read_text().replace("[4k, 8k]", "[8k, 16k]"))
    assert "in no plan any more" not in say("status")  # the plan is that of the last `plan` or `submit`
    said = say("submit", "--payload", "debug")
    assert "submitted 2 runs" in said and "2 runs in no plan any more, and still in a job" in said
    ids = say("status").partition("to stop: scalewright cancel ")[2].splitlines()[0].split()
    assert "2 runs cancelled" in say("cancel", *ids)
    assert "in no plan any more" not in say("status")
    states = [state for state, _ in reasons(say).values()]
    assert sorted(states) == ["cancelled"] * 2 + ["queued"] * 4


@pytest.mark.parametrize("code", [0, 1])
def test_garbage_from_squeue_changes_no_state(slurm, say, code):
    say("submit", "--payload", "debug")
    slurm.set("1000_0", "RUNNING")
    before = reasons(say)
    program = slurm.folder / "squeue"
    kept = program.read_text()
    for line in GARBAGE:
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' '{line}'\nexit {code}\n", encoding="latin-1")
        now = reasons(say)
        assert {run: state for run, (state, _) in now.items()} == {run: state for run, (state, _) in before.items()}
    program.write_text(kept)
    assert reasons(say) == before


def test_a_job_killed_for_its_memory_is_said_once_and_plainly(slurm, say):
    say("submit", "--payload", "debug")
    slurm.set("1000_0", "OUT_OF_MEMORY", exit_code="0:125")
    slurm.set("1000_1", "FAILED", exit_code="137:0")
    said = {reason for state, reason in reasons(say).values() if state == "failed"}
    before = "its job failed before it started: "
    killed = "failed: killed, as a job is that takes too much memory (exit code 137:0)"
    assert said == {before + "out of memory (exit code 0:125)", before + killed}


def test_two_submissions_at_once_share_the_places_of_max_parallel(slurm, say, tmp_path):
    for name, budgets in {"first": "[4k, 8k]", "second": "[16k, 32k]"}.items():
        yaml = (YAML + ON_SLURM).replace("tiny", name).replace("[4k, 8k]", budgets)
        Path(f"{name}.yaml").write_text(yaml + "max_parallel: 2\n")
        say("plan", f"{name}.yaml")
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "sbatch").write_text(f'#!/bin/sh\nsleep 3\nexec {slurm.folder}/sbatch "$@"\n')
    (slow / "sbatch").chmod(0o755)
    environment = os.environ | {"PATH": f"{slow}{os.pathsep}{os.environ['PATH']}"}
    verb = [sys.executable, "-m", "scalewright", "submit", "--payload", "debug"]
    both = [subprocess.Popen([*verb, f"{name}.yaml"], env=environment) for name in ("first", "second")]
    assert [one.wait(120) for one in both] == [0, 0]
    scripts = sorted(Path("jobs").glob("*/logs/1*_submission.sh"), key=lambda path: path.name)
    waits = ["afterany:1000" in path.read_text() for path in scripts]
    assert waits == [False, True] and all("--array=0-3%2" in path.read_text() for path in scripts)
