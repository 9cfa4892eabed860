"""torch.compile takes every method, gated and not, as one graph, and computes the same loss and gradients.

The tracing backends check the graph without a C++ compiler; the real one runs on one method here.
"""

import pytest
import torch
from combinations import MAIN, name_of, spec_of

from scalewright.models.transformer import Transformer


def loss_and_gradients(model, call):
    tokens = torch.randint(model.spec.vocab_size, (2, 13), generator=torch.Generator().manual_seed(0))
    loss = call(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    return loss, {name: parameter.grad for name, parameter in model.named_parameters()}


def compare(entry, backend):
    torch.compiler.reset()
    eager, compiled = (Transformer(spec_of(entry, depth=1)) for _ in range(2))
    if eager.gates is not None:
        with torch.no_grad():
            eager.gates.alpha.fill_(0.2), compiled.gates.alpha.fill_(0.2)
    expected = loss_and_gradients(eager, eager.loss)
    got = loss_and_gradients(compiled, torch.compile(compiled.loss, fullgraph=True, backend=backend))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("entry", MAIN, ids=name_of)
def test_a_model_is_one_graph(entry):
    compare(entry, "aot_eager")


def test_the_default_compiler_computes_the_same_gradients():
    compare(("gpt+", "gpas", "architecture"), "inductor")
