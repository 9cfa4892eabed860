"""A spec says what is wrong in one line, fills in every default, and never imports torch."""

import json
import subprocess
import sys

import pytest

from scalewright.models.count import DEFAULT_FLOP_CONVENTION, FLOP_CONVENTIONS, flops_per_token, n_params
from scalewright.models.errors import ModelError
from scalewright.models.gating import GATES
from scalewright.models.methods import METHODS
from scalewright.models.spec import ModelSpec

SHAPE = {"width": 16, "depth": 2, "heads": 2, "vocab_size": 19, "context": 12}


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"method": "anpgt"}, "unknown method 'anpgt'; did you mean 'angpt'? (valid: gpt, gpt+, angpt,"),
        ({"gate": "gaps"}, "unknown gate 'gaps'; did you mean 'gpas'? (valid: none, gpas,"),
        ({"init": "xavier"}, "unknown init 'xavier' (valid: normal-0.02, scaled,"),
        ({"method": "angpt", "method_options": {"alpha": 1}}, "unknown option of method angpt 'alpha'"),
        (
            {"method": "angpt", "method_options": {"nu_p": "two"}},
            "method angpt: nu_p = 'two': expected one of one, heads",
        ),
        ({"method": "angpt", "method_options": {"constant_factors": True}}, "expected one of 1.0, 0.5, 2.0, off"),
        ({"method": "angpt", "method_options": {"alpha_init": "x"}}, "alpha_init = 'x': expected a number"),
        ({"method": "angpt", "method_options": {"alpha_init": float("nan")}}, "expected a finite number from 0.0"),
        ({"method": "angpt", "method_options": {"qk_norm": 1}}, "qk_norm = 1: expected true or false"),
        ({"method": "gpt", "method_options": {"x": 1}}, "(valid: none)"),
        ({"method": "mix-ln", "method_options": {"ratio": 1.5}}, "from 0.0 up to 1.0"),
        ({"heads": 3}, "heads = 3: width 16 / heads must be a whole even number"),
        ({"heads": 16}, "must be a whole even number"),
        ({"width": 0}, "width = 0: expected a whole number above 0"),
        ({"depth": 2.0}, "depth = 2.0: expected a whole number above 0"),
        ({"mlp_width": -1}, "mlp_width = -1"),
        ({"norm_eps": 0.0}, "norm_eps"),
        (
            {"method": "post-ln", "gate": "gpas"},
            "gpas on post-ln has no source (gpas was published on: gpt, gpt+, pre-ln",
        ),
        ({"method": "angpt", "gate": "gpas"}, "set experimental: true"),
        ({"method": "lns", "gate": "naive"}, "naive on lns has no source"),
        (
            {"method": "lns", "gate": "gpas", "gate_options": {"position": "after-norm"}},
            "gpas at position after-norm on lns has no source",
        ),
        ({"method": "pre-ln", "gate": "fixed", "gate_options": {"values": [0.1]}}, "values has 1 numbers"),
        (
            {"method": "post-ln", "gate": "gpas", "gate_options": {"position": "after-norm"}, "experimental": True},
            "layers without a pre norm",
        ),
    ],
)
def test_a_wrong_spec_is_refused_in_one_line_with_what_is_valid(changes, message):
    with pytest.raises(ModelError) as caught:
        ModelSpec(**{**SHAPE, **changes})
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_combinations_without_a_source_can_be_asked_for():
    for method in METHODS:
        for gate in GATES:
            ModelSpec(**SHAPE, method=method, gate=gate, experimental=True)


def test_every_default_is_in_the_dict_and_a_given_default_changes_nothing():
    bare = ModelSpec(**SHAPE, method="angpt")
    spelled = ModelSpec(
        **SHAPE,
        method="angpt",
        method_options={"alpha_init": 0.01, "constant_factors": 1},
        init="normalised",
        mlp_width=64,
        rope_base=10000,
        experimental=True,
    )
    assert json.dumps(bare.to_dict()) == json.dumps(spelled.to_dict())
    options = METHODS["angpt"].options
    assert set(bare.to_dict()["method_options"]) == {name for name in options if not options[name].added}
    assert "experimental" not in bare.to_dict()


def test_every_option_that_is_changed_changes_the_dict():
    base = ModelSpec(**SHAPE, method="angpt").to_dict()
    for name, option in METHODS["angpt"].options.items():
        other = next((c for c in option.choices if c != option.default), None)
        value = other if option.choices else (not option.default if isinstance(option.default, bool) else 0.05)
        assert ModelSpec(**SHAPE, method="angpt", method_options={name: value}).to_dict() != base


def test_an_option_added_later_is_written_only_off_its_default():
    at_default = ModelSpec(**SHAPE, method="angpt", method_options={"logit_scale_init": 1})
    assert at_default.to_dict() == ModelSpec(**SHAPE, method="angpt").to_dict()
    spec = ModelSpec(**SHAPE, method="angpt", method_options={"logit_scale_init": 4})
    assert spec.to_dict()["method_options"]["logit_scale_init"] == 4.0
    assert ModelSpec.from_dict(spec.to_dict()) == spec


def test_an_admitted_combination_can_be_rebuilt_from_its_dict():
    spec = ModelSpec(**SHAPE, method="post-ln", gate="gpas", experimental=True)
    assert ModelSpec.from_dict(spec.to_dict()) == spec
    with pytest.raises(ModelError, match="unknown field of a model 'widht'"):
        ModelSpec.from_dict({"widht": 3})


def test_flop_conventions_by_hand():
    """width 16, depth 2, MLP 64: 2 (4 16^2 + 3 16 64) = 8192 in matrices, 5 gains of 16, 4 QK gains of 8, head 304."""
    spec = ModelSpec(**SHAPE)
    n, head = 8192 + 80 + 32, 19 * 16
    assert n_params(spec) == n and n_params(spec, "total") == n + 2 * head
    causal = 6 * 2 * 12 * 16
    expected = {
        "6n": 6 * n,
        "6n+head": 6 * (n + head),
        "6n-total": 6 * (n + 2 * head),
        "6n+attention-causal": 6 * n + causal,
        "6n+attention-full": 6 * n + 2 * causal,
        "6n+head+attention-causal": 6 * (n + head) + causal,
        "6n+head+attention-full": 6 * (n + head) + 2 * causal,
    }
    got = {name: flops_per_token(spec, name) for name in FLOP_CONVENTIONS if name != "all-operations"}
    assert got == expected
    assert flops_per_token(spec) == expected[DEFAULT_FLOP_CONVENTION]


def test_all_operations_add_what_a_method_adds():
    def extra(**changes):
        return flops_per_token(ModelSpec(**SHAPE, **changes), "all-operations")

    gate = extra(method="pre-ln", gate="gpas") - extra(method="pre-ln")
    assert gate == 3 * 4 * 16  # one product an element at four sites, and twice that backward
    sandwich = extra(method="sandwich-ln") - extra(method="pre-ln")
    assert sandwich == 3 * 4 * 4 * 16  # an RMSNorm more at four sites
    assert extra(method="angpt", method_options={"normalisation": "exact"}) > extra(method="angpt")


def test_unknown_names_of_counts_are_refused_with_the_valid_ones():
    with pytest.raises(ModelError, match="unknown FLOP convention '7n'.*6n-total"):
        flops_per_token(ModelSpec(**SHAPE), "7n")
    with pytest.raises(ModelError, match="unknown count of parameters 'all'.*total"):
        n_params(ModelSpec(**SHAPE), "all")


def test_planning_a_model_imports_no_torch():
    code = (
        "import sys; from scalewright.models.spec import ModelSpec;"
        "from scalewright.models.count import flops_per_token;"
        "flops_per_token(ModelSpec(16, 2, 2, 19, 12, method='angpt')); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_all_operations_of_three_methods_by_hand():
    """Of width 16, depth 2, MLP 64, two heads, context 12, vocabulary 19; a backward pass counts twice the forward.

    An RMSNorm is 4 an element, a unit norm 3, rotary 3, SwiGLU 5, softmax 5, an addition 1, LERP 3, a scale 1.
    """
    matrices, attention, softmax = 6 * (8192 + 19 * 16), 6 * 2 * 12 * 16, 5 * 2 * 12 // 2
    gpt = 2 * (2 * 16 * (4 + 1) + 2 * 16 * (3 + 4) + 64 * 5 + softmax) + 4 * 16
    ngpt = 2 * (2 * 16 * (3 + 3 + 3) + 2 * 16 * (3 + 3 + 1) + 64 * (5 + 2) + softmax) + 19
    angpt = 2 * (2 * 16 * (3 + 3) + 2 * 16 * (3 + 3) + 64 * 5 + softmax) + 19
    exact = angpt + 2 * 3 * (3 * 16 + 3 * 64 + 2 * 16)  # v, both outputs; u, z, inner; the stream after each join
    cases = {"gpt+": gpt, "ngpt": ngpt, "angpt": angpt}
    found = {name: flops_per_token(ModelSpec(**SHAPE, method=name), "all-operations") for name in cases}
    assert found == {name: matrices + attention + 3 * extra for name, extra in cases.items()}
    spec = ModelSpec(**SHAPE, method="angpt", method_options={"normalisation": "exact"})
    assert flops_per_token(spec, "all-operations") == matrices + attention + 3 * exact
