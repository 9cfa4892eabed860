"""A size and a method of the YAML -> ModelSpec. The one place that knows both rooms' names for a shape."""

from collections.abc import Mapping
from typing import Any

from scalewright.models.methods import METHODS
from scalewright.models.methods.method import Method as ModelMethod
from scalewright.models.own import is_own, own_record
from scalewright.models.spec import ModelSpec
from scalewright.orchestrator.config.experiment import Method, Size

PLAIN_METHOD = "pre-ln"  # the shape alone, when a size is checked or a budget counts its parameters
ANY_VOCAB_SIZE, ANY_CONTEXT = 256, 128  # for what does not depend on them


def model_spec(
    size: Size, method: Method, *, context: int, vocab_size: int, options: Mapping[str, Mapping[str, Any]] | None = None
) -> ModelSpec:
    """Build the spec, with `options` ("options", "gate_options", "init_options") laid over the method's own.

    Raises scalewright.models.errors.ModelError with the valid names.
    """
    over = options or {}
    shape = {key: value for key in ("mlp_width", "rope_base", "norm_eps") if (value := getattr(size, key)) is not None}
    return ModelSpec(
        width=size.width,
        depth=size.depth,
        heads=size.heads,
        vocab_size=vocab_size,
        context=context,
        method=method.method,
        method_options={**method.options, **over.get("options", {})},
        gate=method.gate,
        gate_options={**method.gate_options, **over.get("gate_options", {})},
        init=method.init,
        init_options={**method.init_options, **over.get("init_options", {})},
        code=method.code,
        experimental=method.experimental,
        **shape,
    )


def method_record(method: Method) -> ModelMethod:
    """Return the record behind a method of the YAML: an entry of METHODS, or a constant of the user's file."""
    own = is_own(method.method)
    return own_record(method.method, method.code, ModelMethod) if own else METHODS[method.method]
