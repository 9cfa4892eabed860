"""isoFLOP curves of an experiment -> its sizes, budgets and which belong together: what depends on the vocabulary."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from scalewright.models.count import DEFAULT_FLOP_CONVENTION, flops_per_token, n_params
from scalewright.models.spec import ModelSpec
from scalewright.orchestrator.config.experiment import Experiment, Method, Size
from scalewright.orchestrator.config.ladder import plain_params, shape_of, solve_shape
from scalewright.orchestrator.config.models import PLAIN_METHOD, model_spec
from scalewright.orchestrator.config.shapes import IsoFlop
from scalewright.orchestrator.config.values import Budget, short_count
from scalewright.orchestrator.config.yaml_text import KeyPath

FLOPS_PER_PARAMETER_TOKEN = 6.0
MOST_PARAMETERS = 1e15
N_HALVINGS = 40  # of what is left of the logarithm: to 1e-10 of it


@dataclass(frozen=True)
class Optimum:
    """A stored N* = coefficient * C^exponent; counts_head: C is the planned compute of a run, not 6 N D."""

    coefficient: float
    exponent: float
    counts_head: bool


OptimumLookup = Callable[[str, str | None], Optimum]  # (name of the law, method or None) -> optimum; raises ValueError


def no_optima(name: str, method: str | None) -> Optimum:
    """Know no stored law: what a plan without a database asks."""
    raise ValueError(f'no stored law "{name}"')


def with_isoflop(experiment: Experiment, vocab_size: int, optima: OptimumLookup = no_optima) -> Experiment:
    """Add the budgets and the solved sizes of `isoflop`; raises UserError at the key that has no solution."""
    isoflop = experiment.isoflop
    if isoflop is None:
        return experiment
    sizes, budgets, asked = dict(experiment.sizes), dict(experiment.budgets), dict(experiment.asked_params)
    places = {(size, budget) for size in sizes for budget in budgets}
    for number, budget in enumerate(isoflop.budgets):
        path: KeyPath = ("isoflop", "budgets")
        written = (*path, number) if isinstance(experiment.source.at(path), list) else path
        budgets[budget.text] = budget
        try:
            curve = _solve_curve(isoflop, budget, vocab_size, max(experiment.context), optima)
        except ValueError as refused:
            raise experiment.source.error(written, f"{budget.text}: {refused}") from None
        for wanted, shape in curve.items():
            name = short_count(plain_params(shape))
            if sizes.get(name, shape) != shape:  # another shape reads alike in three digits
                name = f"{shape.width}x{shape.depth}"
            sizes[name], asked[name] = shape, asked.get(name, wanted)
            places.add((name, budget.text))
    solved = {name: sizes[name] for name in sorted(sizes.keys() - experiment.sizes, key=lambda one: asked[one])}
    sizes = {name: sizes[name] for name in experiment.sizes} | solved
    update = {"sizes": sizes, "budgets": budgets, "asked_params": asked, "places": frozenset(places)}
    return experiment.model_copy(update=update)


def _solve_curve(
    isoflop: IsoFlop, budget: Budget, vocab_size: int, context: int, optima: OptimumLookup
) -> dict[float, Size]:
    """Return shapes by the parameters asked for: in equal ratios around the middle of one compute."""
    middle = _solve_middle(isoflop, budget.amount, vocab_size, context, optima)
    curve: dict[float, Size] = {}
    for step in range(isoflop.sizes):
        wanted = middle * isoflop.span ** (step / (isoflop.sizes - 1) - 0.5)
        shape = solve_shape(wanted, isoflop)
        if shape in curve.values():
            both = f"two sizes near {short_count(wanted)} are {shape.width} wide and {shape.depth} deep"
            raise ValueError(f"{both}; take fewer sizes, a smaller head_dim or more span")
        curve[wanted] = shape
    return curve


def _solve_middle(isoflop: IsoFlop, flops: float, vocab_size: int, context: int, optima: OptimumLookup) -> float:
    """Return the parameters in the middle of a curve.

    With f FLOPs a token and parameter, D = C / (f N). At r tokens per parameter N = sqrt(C / (f r)); by a law in
    C' = 6 N D, N = G (6 C / f)^a. f falls slowly with N, so there is one N that is its own answer.
    """
    if isinstance(isoflop.centre, float) and isoflop.law is None:
        return isoflop.centre
    law = None if isoflop.law is None else optima(isoflop.law, isoflop.method)

    def answer(n: float) -> float:
        spec = _plain(solve_shape(n, isoflop), vocab_size, context)
        per_parameter = flops_per_token(spec, DEFAULT_FLOP_CONVENTION) / n_params(spec)
        if law is None:
            assert isinstance(isoflop.centre, Budget)
            return sqrt(flops / (per_parameter * isoflop.centre.amount))
        known = flops if law.counts_head else FLOPS_PER_PARAMETER_TOKEN * flops / per_parameter
        return float(law.coefficient * known**law.exponent)

    low, high = float(plain_params(shape_of(1, 1, isoflop))), MOST_PARAMETERS
    for _ in range(N_HALVINGS):
        middle = sqrt(low * high)
        low, high = (middle, high) if answer(middle) > middle else (low, middle)
    return high


def _plain(size: Size, vocab_size: int, context: int) -> ModelSpec:
    return model_spec(size, Method(method=PLAIN_METHOD), context=context, vocab_size=vocab_size)
