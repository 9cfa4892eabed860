"""Twenty steps of training of every method, gated and not, against stored losses.

A change that moves them moves every result: it needs a reason in its commit. Run this file to write those anew that
are new or have moved.
"""

import json
from pathlib import Path

import pytest
import torch

from scalewright.models.constraints import constrain
from scalewright.models.errors import ModelError
from scalewright.models.methods import METHODS
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer

STORED = Path(__file__).parent / "model_losses.json"
SUMMED = 1e-3  # other processors sum in another order; in 20 steps at this rate that stays below


def names() -> list[str]:
    found = []
    for method in METHODS:
        for gate in ("none", "gpas"):
            try:
                build(f"{method} {gate}")
            except ModelError:
                continue
            found.append(f"{method} {gate}")
    return found


def build(name: str) -> Transformer:
    method, gate = name.split()
    return Transformer(ModelSpec(24, 4, 2, 31, 16, method=method, gate=gate), seed=0)


def curve(name: str) -> list[float]:
    """Train on sequences that count upwards by a step of their own, so that there is something to learn."""
    torch.set_num_threads(1)
    model, losses = build(name), []
    optimizer, after = torch.optim.AdamW(model.parameters(), lr=3e-3), constrain(model)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        start, step = (torch.randint(n, (8, 1), generator=generator) for n in (31, 4))
        tokens = (start + step * torch.arange(17)) % 31
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after()
        losses.append(round(loss.item(), 6))
    return losses


@pytest.mark.parametrize("name", names())
def test_twenty_steps_are_the_stored_ones(name):
    assert curve(name) == pytest.approx(json.loads(STORED.read_text())[name], abs=SUMMED)


def test_every_stored_curve_falls():
    for name, losses in json.loads(STORED.read_text()).items():
        assert losses[-1] < losses[0], name


if __name__ == "__main__":
    stored, found = json.loads(STORED.read_text()), {name: curve(name) for name in names()}
    kept = {
        name: stored[name] for name in found.keys() & stored if stored[name] == pytest.approx(found[name], abs=SUMMED)
    }
    STORED.write_text(json.dumps(found | kept, indent=1) + "\n")
