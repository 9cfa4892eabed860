"""One cluster for the tests that can share it; where SLURM is not installed they skip with the reason."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent / "orchestrator" / "jobs"):
    sys.path.insert(0, str(folder))

from cluster import running_cluster, why_not  # noqa: E402

MEMORY_POLICY = {
    "JobAcctGatherType": "jobacct_gather/linux",
    "JobAcctGatherParams": "OverMemoryKill",
    "JobAcctGatherFrequency": "task=1",
}


@contextmanager
def visible(**options):
    """Start a cluster and make this process one of its login shells."""
    reason = why_not(accounting=options.get("accounting", True))
    if reason:
        pytest.skip(f"no SLURM cluster here: {reason}")
    with running_cluster(**options) as cluster:
        before = dict(os.environ)
        os.environ["SLURM_CONF"] = str(cluster.conf)
        yield cluster
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="module")
def cluster():
    """Three nodes, with sacct; a preempted job gets its own signal, and one that takes too much memory is killed."""
    with visible(accounting=True, n_cpus=12, memory_mb=6000, settings=MEMORY_POLICY) as running:
        yield running


@pytest.fixture(scope="module")
def plain_cluster():
    """One node, no accounting; a preempted job gets SIGTERM alone, as SLURM does out of the box."""
    with visible(accounting=False, n_nodes=1, settings={"SlurmctldParameters": "idle_on_node_suspend"}) as running:
        yield running
