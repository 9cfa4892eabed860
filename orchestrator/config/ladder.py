"""Numbers of parameters -> shapes that can be built: the sizes of a ladder, with what rounding changed."""

from bisect import bisect_left
from math import log

from scalewright.models.count import n_params
from scalewright.orchestrator.config.experiment import Experiment, Method, Size
from scalewright.orchestrator.config.models import ANY_CONTEXT, ANY_VOCAB_SIZE, PLAIN_METHOD, model_spec
from scalewright.orchestrator.config.shapes import ShapeRule
from scalewright.orchestrator.config.values import short_count

MOST_HEADS = 10_000


def plain_params(size: Size) -> int:
    """Return the non-embedding parameters of a shape without method or gate."""
    spec = model_spec(size, Method(method=PLAIN_METHOD), context=ANY_CONTEXT, vocab_size=ANY_VOCAB_SIZE)
    return n_params(spec, "non-embedding")


def solve_shape(wanted: float, rule: ShapeRule) -> Size:
    """Return the shape with about `wanted` non-embedding parameters.

    Its width is the multiple of head_dim that comes nearest at the aspect asked for, its depth the whole number of
    layers that comes nearest at this width: half a layer off at most. Raises ValueError where that is no layer.
    """
    heads = bisect_left(range(1, MOST_HEADS), wanted, key=lambda heads: _at_aspect(heads, rule)) + 1
    near = [one for one in (heads - 1, heads) if one > 0]
    heads = min(near, key=lambda one: abs(log(_at_aspect(one, rule) / wanted)))
    fixed, per_layer = _count_parts(heads, rule)
    depth = round((wanted - fixed) / per_layer)
    if depth < 1:
        least = f"one layer {heads * rule.head_dim} wide has {short_count(fixed + per_layer)}"
        raise ValueError(f"no shape has {short_count(wanted)} parameters: {least}; take a smaller head_dim")
    return shape_of(heads, depth, rule)


def shape_of(heads: int, depth: int, rule: ShapeRule) -> Size:
    """Return the size of so many heads and layers."""
    width = heads * rule.head_dim
    mlp_width = None if rule.mlp_ratio is None else max(1, round(rule.mlp_ratio * width))
    return Size(width=width, depth=depth, heads=heads, mlp_width=mlp_width)


def _count_parts(heads: int, rule: ShapeRule) -> tuple[int, int]:
    """Return the parameters of a width that no layer has, and those of a layer."""
    one, two = (plain_params(shape_of(heads, depth, rule)) for depth in (1, 2))
    return 2 * one - two, two - one


def _at_aspect(heads: int, rule: ShapeRule) -> float:
    """Return the parameters of a width at the aspect asked for, were half layers possible."""
    fixed, per_layer = _count_parts(heads, rule)
    return fixed + per_layer * heads * rule.head_dim / rule.aspect


def with_ladder(experiment: Experiment) -> Experiment:
    """Add the solved sizes of `ladder` to those that are named; raises UserError at the key that has no solution."""
    ladder, error = experiment.ladder, experiment.source.error
    if ladder is None:
        return experiment
    if ladder.last <= ladder.first:
        raise error(("ladder", "to"), f"{ladder.last:g} must be greater than `from`, {ladder.first:g}")
    sizes, asked = dict(experiment.sizes), dict[str, float]()
    for wanted in ladder.targets:
        name = short_count(wanted)
        try:
            shape = solve_shape(wanted, ladder)
        except ValueError as refused:
            raise error(("ladder", "from"), str(refused)) from None
        if name in experiment.sizes:
            raise error(("sizes", name), "the ladder has a size of this name too")
        if name in asked or shape in sizes.values():
            both = f"two sizes near {name} are {shape.width} wide and {shape.depth} deep"
            raise error(("ladder", "steps"), f"{both}; take fewer steps, a smaller head_dim or another aspect")
        sizes[name], asked[name] = shape, wanted
    return experiment.model_copy(update={"sizes": sizes, "asked_params": asked})
