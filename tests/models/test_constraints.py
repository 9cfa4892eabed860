"""What is projected after a step: restated row by row, and nothing else touched."""

import pytest
import torch

from scalewright.models.constraints import constrain
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer, parameter_roles
from scalewright.models.wiring import MATRIX_ROLES

SHAPE = {"width": 16, "depth": 2, "heads": 2, "vocab_size": 19, "context": 12, "mlp_width": 24}
OUTPUTS = ("attention.body.out", "mlp.body.out")


def disturbed(**options):
    """Build a model whose rows are partly longer and partly shorter than 1."""
    model = Transformer(ModelSpec(**SHAPE, method="angpt", method_options=options))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter_roles(model)[name] in MATRIX_ROLES:
                generator = torch.Generator().manual_seed(len(name))
                parameter.mul_(0.5 + torch.rand(parameter.shape[0], 1, generator=generator))
    return model


def after_constraint(model):
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    constrain(model)()
    return before, dict(model.named_parameters())


def vectors(weight, name, axis):
    return weight.T if axis == "ngpt" and name.endswith(OUTPUTS) else weight


@pytest.mark.parametrize("kind", ["bounded", "normalised", "none"])
@pytest.mark.parametrize("axis", ["row", "ngpt"])
def test_every_row_is_bounded_or_normalised_on_its_axis(kind, axis):
    before, after = after_constraint(model := disturbed(constraint=kind, bound_axis=axis))
    for name, role in parameter_roles(model).items():
        if role not in MATRIX_ROLES or kind == "none":
            assert torch.equal(before[name], after[name]), name
            continue
        pairs = zip(vectors(before[name], name, axis), vectors(after[name], name, axis), strict=True)
        for row, got in pairs:
            length = row.square().sum().sqrt()
            if kind == "bounded" and length <= 1:
                assert torch.equal(row, got)  # a short row is not stretched
            else:
                torch.testing.assert_close(got, row / length, rtol=1e-5, atol=1e-7)


def test_the_frobenius_axis_bounds_each_matrix_by_the_root_of_its_rows():
    """So that its rows have norm 1 on average; query, key and value count as matrices of their own."""
    before, after = after_constraint(disturbed(bound_axis="frobenius"))
    for name, n_parts in (("blocks.0.attention.body.qkv", 3), ("blocks.1.mlp.body.uz", 2), ("head.weight", 1)):
        for old, new in zip(before[name].chunk(n_parts), after[name].chunk(n_parts), strict=True):
            length, limit = old.norm(), old.shape[0] ** 0.5
            torch.testing.assert_close(new, old / max(1.0, (length / limit).item()))


@pytest.mark.parametrize("method", ["gpt+", "pre-ln", "deepnorm"])
def test_methods_without_a_constraint_are_left_alone(method):
    model = Transformer(ModelSpec(**SHAPE, method=method))
    before, after = after_constraint(model)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_ngpt_is_normalised_before_the_first_step_under_any_init():
    model = Transformer(ModelSpec(**SHAPE, method="ngpt", init="normal-0.02"))
    for name, role in parameter_roles(model).items():
        if role in MATRIX_ROLES:
            norms = vectors(dict(model.named_parameters())[name], name, "ngpt").norm(dim=1)
            torch.testing.assert_close(norms, torch.ones_like(norms))


def test_a_zero_row_stays_zero():
    model = Transformer(ModelSpec(**SHAPE, method="ngpt"))
    with torch.no_grad():
        model.head.weight[3].zero_()
    constrain(model)()
    assert model.head.weight[3].eq(0).all()


def test_the_constraint_follows_weights_loaded_or_moved_after_it_was_made():
    """A checkpoint is loaded after the model was built; what constrains it must see the loaded weights."""
    model, after = Transformer(ModelSpec(**SHAPE, method="angpt")), None
    after = constrain(model)
    model.load_state_dict({name: value * 3 for name, value in model.state_dict().items()})
    after()
    assert model.head.weight.norm(dim=1).max().item() == pytest.approx(1.0, rel=1e-5)
    model.double()
    with torch.no_grad():
        model.head.weight.mul_(3)
    after()
    assert model.head.weight.norm(dim=1).max().item() == pytest.approx(1.0, rel=1e-5)
