"""What a training process sets for itself."""

import subprocess
import sys

import pytest

# A process of its own: in one that has run other tests, the heap may have no room for a large block.
PROGRAM = """
import resource, sys
import torch
from scalewright.orchestrator.train import process

LARGE = 16_000_000  # numbers: 64 MB, more than glibc ever keeps by itself

def page_faults_of_a_large_tensor():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(LARGE)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

kept = process.keep_freed_memory() if sys.argv[1] == "keep" else False
for _ in range(12):  # glibc's cache of small blocks fills first: until then large ones stay apart
    page_faults_of_a_large_tensor()
print(int(kept), page_faults_of_a_large_tensor() / (LARGE * 4 / resource.getpagesize()))
"""


def faults_a_page(mode: str) -> tuple[bool, float]:
    """Whether freed memory is kept, and page faults for each page of one more large tensor."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True)
    kept, faults = ran.stdout.split()
    return kept == "1", float(faults)


def test_the_memory_of_a_freed_tensor_is_used_again_without_page_faults() -> None:
    kept, faults = faults_a_page("keep")
    if not kept:
        pytest.skip("the C library has no mallopt")
    assert faults < 0.1 < faults_a_page("default")[1]
