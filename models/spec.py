"""ModelSpec: everything that says which model is built. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from scalewright.models.errors import ModelError
from scalewright.models.gating import GATES, Gate, Site, site_of, why_unsourced
from scalewright.models.inits import INITS, Init
from scalewright.models.methods import METHODS
from scalewright.models.methods.method import Method
from scalewright.models.options import Options, pick, resolve_options, written
from scalewright.models.own import is_own, own_record
from scalewright.models.wiring import Interior, Shape, Wiring

LOGITS_AT_ONCE = 2**26  # 256 MiB in fp32: the loss of more is computed in parts
DEFAULT_MLP_RATIO = 4  # mlp_width = 4 width for all methods, so that they are comparable at equal size


@dataclass(frozen=True)
class ModelSpec:
    """A model by size, method, gate and init; constructing one checks it and fills in every default.

    width, depth, heads, context and mlp_width are counts; width is a multiple of heads with an even quotient
    (rotary pairs). `experimental` admits combinations without a source; it changes no result and is no part of to_dict.
    code: the texts of a user's files, by name, where method or gate is one of theirs (`mine.py:MINE`).
    Raises ModelError (one line, with the valid names).
    """

    width: int
    depth: int
    heads: int
    vocab_size: int
    context: int
    method: str = "gpt+"
    method_options: Options = field(default_factory=dict)
    gate: str = "none"
    gate_options: Options = field(default_factory=dict)
    init: str | None = None
    init_options: Options = field(default_factory=dict)
    mlp_width: int | None = None
    rope_base: float = 10000.0
    norm_eps: float = 1e-6
    code: dict[str, str] = field(default_factory=dict)
    experimental: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        method, gate = self.method_record, self.gate_record
        init = INITS[pick(self.init or method.init, INITS, "init")]
        self._fill(
            init=self.init or method.init,
            mlp_width=DEFAULT_MLP_RATIO * self.width if self.mlp_width is None else self.mlp_width,
            rope_base=float(self.rope_base),
            norm_eps=float(self.norm_eps),
        )
        _check_shape(self)
        self._fill(
            method_options=resolve_options(method.options, self.method_options, f"method {self.method}"),
            gate_options=resolve_options(gate.options, self.gate_options, f"gate {self.gate}"),
            init_options=resolve_options(init.options, self.init_options, f"init {self.init}"),
        )
        _check_combination(self)

    def _fill(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def resolve(self) -> ModelSpec:
        """Return the spec with every default filled in: itself, since construction does that."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return what determines the model, defaults included, as plain JSON values."""
        record = {item.name: getattr(self, item.name) for item in fields(self) if item.compare}
        if not self.code:
            del record["code"]
        return record | {
            "method_options": written(self.method_record.options, self.method_options),
            "gate_options": written(self.gate_record.options, self.gate_options),
            "init_options": written(self.init_record.options, self.init_options),
        }

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> ModelSpec:
        """Rebuild a spec from to_dict; a combination admitted once is not asked for its source again."""
        for name in record:
            pick(name, {item.name: item for item in fields(cls)}, "field of a model")
        return cls(**{"experimental": True, **record})

    @property
    def shape(self) -> Shape:
        """The numbers that a method's wiring may depend on."""
        assert self.mlp_width is not None
        return Shape(self.width, self.depth, self.heads, self.vocab_size, self.context, self.mlp_width)

    @property
    def method_record(self) -> Method:
        """The entry of METHODS, or the user's own."""
        own = is_own(self.method)
        return own_record(self.method, self.code, Method) if own else METHODS[pick(self.method, METHODS, "method")]

    @property
    def gate_record(self) -> Gate:
        """The entry of GATES, or the user's own."""
        return own_record(self.gate, self.code, Gate) if is_own(self.gate) else GATES[pick(self.gate, GATES, "gate")]

    @property
    def init_record(self) -> Init:
        """The entry of INITS."""
        assert self.init is not None
        return INITS[self.init]

    def wiring(self, layer: int) -> Wiring:
        """Return the wiring of a layer, counted from 0."""
        return self.method_record.wiring(layer, self.depth, self.method_options)

    def interior(self) -> Interior:
        """Return what the method changes inside its sub-layers and at both ends."""
        return self.method_record.interior(self.shape, self.method_options)

    def gate_site(self, layer: int) -> Site | None:
        """Return where the gate of a layer sits, or None without a gate."""
        return None if self.gate == "none" else site_of(self.gate_options["position"], self.wiring(layer))


def _check_shape(spec: ModelSpec) -> None:
    for name in ("width", "depth", "heads", "vocab_size", "context", "mlp_width"):
        value = getattr(spec, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(f"{name} = {value!r}: expected a whole number above 0")
    if spec.width % spec.heads or spec.shape.head_dim % 2:
        raise ModelError(f"heads = {spec.heads}: width {spec.width} / heads must be a whole even number")
    if not spec.rope_base > 1 or not 0 < spec.norm_eps < 1:
        raise ModelError(f"rope_base = {spec.rope_base}, norm_eps = {spec.norm_eps}: expected > 1 and in (0, 1)")


def _check_combination(spec: ModelSpec) -> None:
    values = spec.gate_options.get("values")
    if isinstance(values, list) and len(values) != spec.depth:
        raise ModelError(f"gate {spec.gate}: values has {len(values)} numbers, expected one a layer: {spec.depth}")
    if is_own(spec.method):
        _check_own(spec)
    why = why_unsourced(spec.gate, spec.gate_record, spec.method, spec.gate_options)
    if why and not spec.experimental:
        raise ModelError(f"{why}; set experimental: true to train it anyway")
    position = spec.gate_options.get("position")
    if position == "after-norm" and any(spec.wiring(layer).pre is None for layer in range(spec.depth)):
        raise ModelError(f"gate {spec.gate} at position after-norm: {spec.method} has layers without a pre norm")


def _check_own(spec: ModelSpec) -> None:
    """Call a user's functions once, so that what they raise or return is said before a run is planned."""
    try:
        made = [*(spec.wiring(layer) for layer in range(spec.depth)), spec.interior()]
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything
        raise ModelError(f"{spec.method}: {type(error).__name__}: {' '.join(str(error).split())}") from None
    for record, kind in zip(made, [Wiring] * spec.depth + [Interior], strict=True):
        if not isinstance(record, kind):
            name = "wiring" if kind is Wiring else "interior"
            raise ModelError(f"{spec.method}: {name} returns {type(record).__name__}, expected {kind.__name__}")
