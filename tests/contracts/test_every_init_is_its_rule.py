"""The std of every part of every init, measured on built models, against formulas written out once more here."""

import math

import pytest
import torch
from combinations import ALL_INITS

from scalewright.models.inits import PARTS
from scalewright.models.methods import METHODS
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer

WIDTH, DEPTH, MLP, VOCAB = 64, 3, 192, 101
E = math.sqrt(2 / 5)
XAVIER_D, XAVIER_F, BETA = math.sqrt(2 / (2 * WIDTH)), math.sqrt(2 / (WIDTH + MLP)), (8 * DEPTH) ** -0.25
UNIT = 1 / math.sqrt(WIDTH)
SMALL_OUT = 0.02 / math.sqrt(2 * DEPTH)


def mitchell(layer):
    out = 1 / math.sqrt(2 * WIDTH * (layer + 1))
    return [UNIT, UNIT, UNIT, UNIT, out, UNIT, UNIT, 1 / math.sqrt(2 * MLP * (layer + 1)), UNIT]


#                embedding query key value attention_out mlp_u mlp_z mlp_out head
EXPECTED = {
    "normal-0.02": lambda layer: [0.02] * 9,
    "scaled": lambda layer: [0.02, 0.02, 0.02, 0.02, SMALL_OUT, 0.02, 0.02, SMALL_OUT, 0.02],
    "spike-no-more": lambda layer: [E, *[0.02] * 8],
    "mitchell": mitchell,
    "deepnorm": lambda layer: [E, XAVIER_D, XAVIER_D, *[BETA * XAVIER_D] * 2, *[BETA * XAVIER_F] * 3, 0.02],
    "normalised": lambda layer: [*[UNIT] * 7, 1 / math.sqrt(MLP), UNIT],
}


def pieces(model):
    """Yield (part, layer, weights) of a built model."""
    for layer, block in enumerate(model.blocks):
        q, k, v = block.attention.body.qkv.chunk(3)
        u, z = block.mlp.body.uz.chunk(2)
        yield from zip(
            PARTS[1:-1], [layer] * 7, (q, k, v, block.attention.body.out, u, z, block.mlp.body.out), strict=True
        )
    yield "embedding", 0, model.embedding.weight
    yield "head", 0, model.head.weight


@pytest.mark.parametrize("init", ALL_INITS)
@pytest.mark.parametrize("method", [name for name in METHODS if name != "ngpt"])
def test_every_part_starts_with_the_std_of_its_rule(method, init):
    """angpt only bounds its rows: rules that start below norm 1 pass through; the others are tested without bound."""
    free = {"constraint": "none"} if method == "angpt" else {}
    spec = ModelSpec(WIDTH, DEPTH, 4, VOCAB, 16, method=method, method_options=free, init=init, mlp_width=MLP)
    for part, layer, weights in pieces(Transformer(spec)):
        expected = EXPECTED[init](layer)[PARTS.index(part)]
        # relative standard error of a std is 1/sqrt(2n); 5 of them; the cut at 3 sigma takes 1.4 %
        tolerance = 5 / math.sqrt(2 * weights.numel()) + (0.015 if init == "mitchell" else 0)
        assert weights.std().item() == pytest.approx(expected, rel=tolerance), (part, layer)


def test_the_mitchell_init_is_cut_at_three_sigma():
    spec = ModelSpec(WIDTH, DEPTH, 4, VOCAB, 16, method="pre-ln", init="mitchell", mlp_width=MLP)
    for part, layer, weights in pieces(Transformer(spec)):
        assert weights.abs().max() <= 3 * EXPECTED["mitchell"](layer)[PARTS.index(part)]


def test_the_normalised_init_sets_the_norms_that_the_method_constrains():
    for options, out_dim in (({}, 1), ({"bound_axis": "ngpt"}, 0)):
        spec = ModelSpec(32, 2, 4, 31, 16, method="angpt", method_options=options)
        for part, _, weights in pieces(Transformer(spec)):
            norms = weights.norm(dim=out_dim if part in ("attention_out", "mlp_out") else 1)
            torch.testing.assert_close(norms, torch.ones_like(norms))


def test_embedding_std_is_an_option_of_every_init():
    for init in ALL_INITS:
        spec = ModelSpec(WIDTH, 1, 4, 500, 16, method="pre-ln", init=init, init_options={"embedding_std": 0.1})
        weights = Transformer(spec).embedding.weight
        if init == "normalised":
            torch.testing.assert_close(weights.norm(dim=1), torch.ones(500))
        else:
            assert weights.std().item() == pytest.approx(0.1, rel=0.03)


def test_no_option_of_a_method_moves_the_weights_of_another_matrix():
    base = ModelSpec(32, 2, 4, 31, 16, method="angpt")
    for options in ({"qk_norm": False}, {"learned_scales": "all"}, {"join": "add"}, {"final_norm": True}):
        other = ModelSpec(32, 2, 4, 31, 16, method="angpt", method_options=options)
        for (_, _, one), (_, _, two) in zip(pieces(Transformer(base)), pieces(Transformer(other)), strict=True):
            assert torch.equal(one, two), options


def test_seeds_differ_and_two_layers_differ():
    spec = ModelSpec(32, 2, 4, 31, 16)
    one, two = Transformer(spec, seed=0), Transformer(spec, seed=1)
    assert not torch.equal(one.head.weight, two.head.weight)
    assert not torch.equal(one.blocks[0].mlp.body.uz, one.blocks[1].mlp.body.uz)
