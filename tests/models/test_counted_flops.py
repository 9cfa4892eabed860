"""FLOPs counted from the spec against those that torch counts while a model runs forward and backward."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from scalewright.models.count import count_parameters, flops_per_token
from scalewright.models.methods import METHODS
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer


@pytest.mark.parametrize("method", list(METHODS))
def test_matrix_products_of_a_step_are_six_times_the_matrices(method):
    spec = ModelSpec(16, 3, 2, 19, 12, method=method, mlp_width=40)
    model, tokens = Transformer(spec), torch.randint(19, (2, 12), generator=torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter:
        model.loss(tokens, tokens).backward()
    counted = counter.get_flop_counts()["Global"]
    products = sum(n for operation, n in counted.items() if str(operation) in ("aten.mm", "aten.addmm"))
    counts = count_parameters(spec)
    assert products == 6 * (counts["attention"] + counts["mlp"] + counts["head"]) * tokens.numel()


def test_attention_of_a_step_is_counted_by_the_context():
    """Written as products the whole square is computed: forward twice, backward four times 2 context^2 width."""
    spec, shape = ModelSpec(16, 3, 2, 19, 12), (2, 2, 12, 8)  # batch, heads, time, channels
    q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
    with FlopCounterMode(display=False) as counter:
        ((q @ k.transpose(-1, -2)).softmax(-1) @ v).sum().backward()
    per_token_and_layer = counter.get_total_flops() / (2 * 12)
    attention = flops_per_token(spec, "6n+attention-full") - flops_per_token(spec, "6n")
    assert attention == 3 * per_token_and_layer
    assert flops_per_token(spec, "6n+attention-causal") - flops_per_token(spec, "6n") == attention / 2
