"""One run in two processes: the batch shared out, the result the same, stopped and resumed like any other."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from scalewright.orchestrator.code import code_root
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.jobs.job import run_pack
from scalewright.orchestrator.jobs.records import Pack
from scalewright.orchestrator.runs import signals
from scalewright.orchestrator.train.ranks import Ranks
from scalewright.orchestrator.train.run import train
from scalewright.orchestrator.train.system import System
from scalewright.orchestrator.train.tasks import rank_of_task

ROOT = code_root()


def loss_of(run_dir: Path) -> float:
    return json.loads((run_dir / "DONE.json").read_text())["loss_nats"]


def run_on_two(job_dir: Path, *runs: Path) -> dict[str, str]:
    Pack("s1", job_dir.name, [str(run) for run in runs], str(ROOT), "snapshot", devices=2).write(job_dir)
    return run_pack(job_dir)


def test_two_devices_give_the_result_of_one_and_resume_bit_for_bit(
    make_run: Callable[..., Path], tmp_path: Path, read_journal: Callable[..., list[dict[str, Any]]], monkeypatch
) -> None:
    alone, whole, stopped = (make_run(place, model={"method": "angpt"}) for place in ("alone", "whole", "stopped"))
    train(alone)
    step_once = System.step_once

    def stepped(system: System, batch: torch.Tensor) -> None:
        step_once(system, batch)
        if system.progress.step == 17 and (whole / "DONE.json").exists():
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(System, "step_once", stepped)
        outcomes = run_on_two(tmp_path / "jobs" / "a", whole, stopped)
    signals.uninstall()
    assert outcomes == {whole.name: "preempted"}  # the same run in two places, the second one stopped
    assert loss_of(whole) == pytest.approx(loss_of(alone), rel=1e-4)  # fp32 sums in another order
    losses = [record["values"]["loss_nats"] for record in read_journal(whole, "metrics")]
    expected = [record["values"]["loss_nats"] for record in read_journal(alone, "metrics")]
    assert losses == pytest.approx(expected, rel=1e-4)
    assert 17 <= read_journal(stopped, "end")[0]["step"] < 40
    assert run_on_two(tmp_path / "jobs" / "b", stopped) == {stopped.name: "completed"}
    signals.uninstall()
    assert loss_of(stopped) == loss_of(whole)


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        ({"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, None),
        ({"SLURM_NTASKS": "2", "SLURM_PROCID": "1"}, 1),
        ({"SUBMITIT_LOCAL_NTASKS": "2", "SUBMITIT_LOCAL_GLOBALID": "0"}, 0),
    ],
)
def test_the_tasks_of_a_job_are_its_ranks_where_there_are_as_many(environment, rank) -> None:
    assert rank_of_task(2, environment) == rank


def test_shares_are_the_batch_in_parts() -> None:
    batch = torch.arange(12).reshape(4, 3)
    assert torch.equal(torch.cat([Ranks(rank, 2).share(batch) for rank in (0, 1)]), batch)
    with pytest.raises(UserError, match="devices 3: expected a divisor of the batch of 4 sequences"):
        Ranks(0, 3).check_batch(4)


GROUP_THAT_ENDS = """
import sys, weakref
from pathlib import Path
import torch.distributed as distributed
from scalewright.orchestrator.train.ranks import join

ranks = join(0, 1, Path(sys.argv[1]))
import lightning
group = weakref.ref(distributed.group.WORLD)
ranks.close()
assert group() is None, "still there, and with it threads that can abort the process when it exits"
"""


def test_nothing_keeps_the_group_of_processes_when_it_ends(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", GROUP_THAT_ENDS, tmp_path / "meeting"], check=True, env=environment)
