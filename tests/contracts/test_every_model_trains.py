"""Every allowed method x gate x position x init: finite, causal, counted, repeatable, and what it says it is."""

import math

import pytest
import torch
from combinations import ALL_INITS, ENTRIES, MAIN, UNSOURCED, name_of, spec_of

from scalewright.models.constraints import constrain
from scalewright.models.count import COUNT_KINDS, count_parameters, n_params
from scalewright.models.spec import ModelSpec
from scalewright.models.transformer import Transformer, parameter_roles
from scalewright.models.wiring import ROLES


def batch(spec, n=2, seed=0):
    tokens = torch.randint(spec.vocab_size, (n, spec.context + 1), generator=torch.Generator().manual_seed(seed))
    return tokens[:, :-1], tokens[:, 1:]


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
@pytest.mark.parametrize("depth", [1, 8])
def test_forward_and_backward_are_finite_under_every_init(entry, depth):
    for init in ALL_INITS:
        model = Transformer(spec_of(entry, depth=depth, init=init))
        loss = model.loss(*batch(model.spec))
        loss.backward()
        assert math.isfinite(loss.item()), init
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None and parameter.grad.isfinite().all(), (init, name)


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_a_changed_future_token_changes_no_past_logit(entry):
    model = Transformer(spec_of(entry))
    tokens, _ = batch(model.spec)
    changed = tokens.clone()
    changed[:, 7] = (tokens[:, 7] + 1) % model.spec.vocab_size
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.equal(before[:, 7:], after[:, 7:])


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_counts_from_the_spec_are_those_of_the_built_model(entry):
    model = Transformer(spec_of(entry, depth=3))
    roles = parameter_roles(model)
    built = dict.fromkeys(ROLES, 0)
    for name, parameter in model.named_parameters():
        built[roles[name]] += parameter.numel()
    assert built == count_parameters(model.spec)
    total = sum(parameter.numel() for parameter in model.parameters())
    sizes = [n_params(model.spec, kind) for kind in COUNT_KINDS]
    assert sizes == [total, total - built["embedding"] - built["head"], total - built["embedding"]]


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_a_spec_survives_its_dict_and_a_model_its_state(entry):
    spec = spec_of(entry)
    again = ModelSpec.from_dict(spec.to_dict())
    assert again == spec and again.to_dict() == spec.to_dict()
    first, second = Transformer(spec, seed=1), Transformer(again, seed=2)
    second.load_state_dict(first.state_dict())
    tokens, _ = batch(spec)
    assert torch.equal(first(tokens), second(tokens))


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry[1] not in ("none", "fixed")], ids=name_of)
def test_gate_at_zero_is_the_ungated_network(entry):
    gated, plain = (Transformer(spec_of((entry[0], *rest))) for rest in (entry[1:], ("none", "architecture")))
    for model in (gated, plain):
        model.loss(*batch(model.spec)).backward()
    assert torch.equal(gated(batch(gated.spec)[0]), plain(batch(plain.spec)[0]))
    of_gated = dict(gated.named_parameters())
    for name, parameter in plain.named_parameters():
        assert torch.equal(of_gated[name], parameter), f"the gate moved the initial {name}"
        assert torch.equal(of_gated[name].grad, parameter.grad), f"the gate moved the gradient of {name}"


@pytest.mark.parametrize("entry", UNSOURCED, ids=name_of)
def test_combinations_without_a_source_work_when_asked_for(entry):
    gated, plain = Transformer(spec_of(entry, experimental=True)), Transformer(spec_of((entry[0], "none", entry[2])))
    tokens, targets = batch(gated.spec)
    if entry[1] != "fixed":
        assert torch.equal(gated(tokens), plain(tokens))
    gated.loss(tokens, targets).backward()
    assert all(parameter.grad.isfinite().all() for parameter in gated.parameters())


@pytest.mark.parametrize("entry", MAIN, ids=name_of)
@pytest.mark.parametrize("init", ALL_INITS)
def test_initial_loss_is_near_that_of_guessing_where_theory_says_so(entry, init):
    """Random logits of variance v cost log V + v / 2. A final norm makes |x|^2 = width."""
    spec = spec_of(entry, vocab_size=256, init=init, norm_eps=1e-12)
    model = Transformer(spec)
    with torch.no_grad():
        x, logits = model.stream(batch(spec, 8)[0]), model(batch(spec, 8)[0])
        loss = model.loss(*batch(spec, 8)).item()
    excess = logits.var(-1).mean().item() / 2
    assert abs(loss - math.log(256) - excess) < 0.15 + 0.15 * excess
    if spec.interior().final_norm == "rms":
        torch.testing.assert_close(x.square().mean(-1), torch.ones_like(x[..., 0]), rtol=1e-4, atol=0)


@pytest.mark.parametrize("entry", MAIN, ids=name_of)
def test_loss_of_constant_logits_is_exactly_the_log_of_the_vocabulary(entry):
    model = Transformer(spec_of(entry, vocab_size=64))
    with torch.no_grad():
        model.head.weight.zero_()
    assert model.loss(*batch(model.spec)).item() == pytest.approx(math.log(64), abs=1e-6)


@pytest.mark.parametrize("entry", MAIN, ids=name_of)
def test_training_twice_from_one_seed_is_bitwise_the_same(entry):
    def trained():
        model = Transformer(spec_of(entry), seed=3)
        optimizer, after = torch.optim.AdamW(model.parameters(), lr=0.01), constrain(model)
        for step in range(3):
            model.loss(*batch(model.spec, seed=step)).backward()
            optimizer.step()
            optimizer.zero_grad()
            after()
        return model.state_dict()

    first, second = trained(), trained()
    assert all(torch.equal(first[name], second[name]) for name in first)
