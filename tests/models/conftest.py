"""Model tests run on one thread, so that sums are made in one order."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
