"""The loss of many logits, a part at a time: the numbers of the plain one, without its memory."""

import subprocess
import sys

import pytest
import torch

from scalewright.models import transformer
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer

METHODS = ("gpt+", "angpt", "ngpt", "pre-ln")


def measured(monkeypatch, method, at_once, *, form="folded", dtype=None):
    monkeypatch.setattr(transformer, "LOGITS_AT_ONCE", at_once)
    model = Transformer(ModelSpec(16, 2, 2, 97, 24, method=method), seed=3, form=form)
    tokens = torch.randint(97, (3, 25), generator=torch.Generator().manual_seed(1))
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])
    (2 * loss).backward()
    return loss.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("form", ["folded", "plain"])
@pytest.mark.parametrize("method", METHODS)
def test_in_parts_loss_and_gradients_are_those_of_all_logits(monkeypatch, method, form):
    """97 tokens of vocabulary, 72 rows: ten a part leaves one of two."""
    whole, parts = (measured(monkeypatch, method, at_once, form=form) for at_once in (10**9, 10 * 97))
    torch.testing.assert_close(parts[0], whole[0], atol=1e-6, rtol=1e-6)
    for name, gradient in whole[1].items():
        torch.testing.assert_close(parts[1][name], gradient, atol=2e-6, rtol=1e-4, msg=name)


@pytest.mark.parametrize("method", METHODS)
def test_in_bf16_it_is_no_further_from_fp32_than_the_plain_loss(monkeypatch, method):
    exact, _ = measured(monkeypatch, method, 10**9)
    plain, _ = measured(monkeypatch, method, 10**9, dtype=torch.bfloat16)
    parts, gradients = measured(monkeypatch, method, 970, dtype=torch.bfloat16)
    assert abs(parts - exact) <= abs(plain - exact) + 1e-3
    assert all(bool(gradient.isfinite().all()) for gradient in gradients.values())


def test_without_gradients_it_is_the_same_number(monkeypatch):
    with_gradients, _ = measured(monkeypatch, "angpt", 970)
    model = Transformer(ModelSpec(16, 2, 2, 97, 24, method="angpt"), seed=3)
    tokens = torch.randint(97, (3, 25), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.equal(model.loss(tokens[:, :-1], tokens[:, 1:]), with_gradients)


def test_it_compiles_to_the_same_loss(monkeypatch):
    loss, _ = measured(monkeypatch, "angpt", 970)
    model = Transformer(ModelSpec(16, 2, 2, 97, 24, method="angpt"), seed=3)
    tokens = torch.randint(97, (3, 25), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(torch.compile(model.loss, backend="eager")(tokens[:, :-1], tokens[:, 1:]), loss)


STEP = """
import re, sys, torch
from pathlib import Path
from scalewright.models import transformer
from scalewright.models.spec import ModelSpec
transformer.LOGITS_AT_ONCE = int(sys.argv[1])
model = transformer.Transformer(ModelSpec(8, 1, 2, 50304, 256), seed=0)
tokens = torch.randint(50304, (8, 257))
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
print((peak() - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_vocabulary_of_50k_takes_a_part_of_the_memory():
    """2048 rows of 50,304 logits are 393 MiB in fp32; the plain loss holds two to three such arrays."""
    mib = [int(subprocess.check_output([sys.executable, "-c", STEP, str(n)], text=True)) for n in (2**40, 2**22)]
    assert mib[0] > 700 and mib[1] < 200, mib
