"""What a training process sets for itself."""

import resource

import pytest
import torch

from scalewright.orchestrator.train import process

LARGE = 16_000_000  # numbers: 64 MB, more than glibc ever keeps by itself


def page_faults_of_a_large_tensor() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(LARGE)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_the_memory_of_a_freed_tensor_is_used_again_without_page_faults() -> None:
    if not process.keep_freed_memory():
        pytest.skip("the C library has no mallopt")
    page_faults_of_a_large_tensor()
    assert page_faults_of_a_large_tensor() < LARGE * 4 / resource.getpagesize() / 10
