"""Several devices for one run: the same run in as many processes, each with its share of every batch.

Gradients are averaged in one all-reduce a step. Rank 0 does all else (journal, evaluation, checkpoints, DONE.json) and
tells the others after each chunk whether to go on; so a result is the same for any number of devices, up to the order
of fp32 sums. Rank 0 starts the others itself, unless the job already has a task for each.
"""

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as distributed
import torch.distributed.nn.functional  # before any group: its functions would keep the group as a default argument

from scalewright.orchestrator.code import code_root
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.train.tasks import rank_of_task

GO_ON, END = 0, 1


@dataclass(frozen=True)
class Ranks:
    """This process among those that train a run together; on its own by default."""

    rank: int = 0
    size: int = 1
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def device(self) -> torch.device:
        """The GPU of this rank, or the CPU."""
        return torch.device("cuda", self.rank) if torch.cuda.is_available() else torch.device("cpu")

    def share(self, batch: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of the sequences of a batch (sequences, context+1)."""
        return batch if self.size == 1 else batch.chunk(self.size)[self.rank]

    def check_batch(self, n_sequences: int) -> None:
        """Raise UserError when a batch cannot be shared out evenly."""
        if n_sequences % self.size:
            raise UserError(f"devices {self.size}: expected a divisor of the batch of {n_sequences} sequences")

    def average(self, gradients: list[torch.Tensor], loss: torch.Tensor) -> torch.Tensor:
        """Replace every gradient by its mean over the ranks, in place; return the mean of `loss`."""
        if self.size == 1:
            return loss
        flat = torch.cat([*(gradient.flatten().float() for gradient in gradients), loss.reshape(1).float()])
        distributed.all_reduce(flat)
        flat /= self.size
        *means, mean_loss = flat.split([gradient.numel() for gradient in gradients] + [1])
        for gradient, mean in zip(gradients, means, strict=True):
            gradient.copy_(mean.view_as(gradient))
        return mean_loss[0]

    def agree(self, ends: bool) -> bool:
        """Tell the other ranks what rank 0 says: whether the attempt ends here."""
        if self.size == 1:
            return ends
        said = torch.tensor(END if ends else GO_ON, device=self.device)
        distributed.broadcast(said, src=0)
        return bool(said.item() == END)

    def send(self, order: tuple[str, int] | None) -> None:
        """Tell the other ranks what to do next (from rank 0)."""
        if self.size > 1:
            distributed.broadcast_object_list([order], src=0, device=self.device)

    def receive(self) -> tuple[str, int] | None:
        """Wait for what rank 0 sends: the folder of a run and the step to begin at, or None for the end."""
        orders: list[tuple[str, int] | None] = [None]
        distributed.broadcast_object_list(orders, src=0, device=self.device)
        return orders[0]

    def close(self) -> None:
        """End the group, and the processes that were started for it."""
        if distributed.is_initialized():
            distributed.destroy_process_group()
        for process in self.started:
            process.kill()
            process.wait()


ALONE = Ranks()


def open_ranks(size: int, job_dir: Path) -> Ranks:
    """Join the `size` processes of this job, starting those that are missing; wait until all are there."""
    if size == 1:
        return ALONE
    rank = rank_of_task(size)
    meeting = meeting_of_job(job_dir) if rank is not None else Path(tempfile.mkdtemp(prefix="scalewright-")) / "meeting"
    started = [] if rank is not None else [start(number, size, meeting) for number in range(1, size)]
    return join(rank or 0, size, meeting, started)


def meeting_of_job(job_dir: Path) -> Path:
    """Return a file on this node that the tasks of this start of the job share, and no other."""
    names = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SUBMITIT_LOCAL_JOB_ID")
    marks = "-".join(os.environ.get(name, "0") for name in names)
    return Path(tempfile.gettempdir()) / f"scalewright-{job_dir.name}-{marks}"


def join(rank: int, size: int, meeting: Path, started: list["subprocess.Popen[bytes]"] | None = None) -> Ranks:
    """Meet the other ranks at a file (nccl with GPUs, else gloo); returns when all are there."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # one node; its name need not resolve
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    distributed.init_process_group(backend, init_method=meeting.as_uri(), rank=rank, world_size=size)
    return Ranks(rank, size, started or [])


def start(rank: int, size: int, meeting: Path) -> "subprocess.Popen[bytes]":
    """Start one more process on this node; a signal to the job is rank 0's alone."""
    command = [sys.executable, "-m", "scalewright.orchestrator.train.follow", str(rank), str(size), str(meeting)]
    root = str(code_root())
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, preexec_fn=ignore_signals)


def ignore_signals() -> None:
    """Leave stopping to the first rank: signals reach every process of a job."""
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
