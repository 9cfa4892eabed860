"""Peak learning rates by a named rule: fixed, table, power, or a stored hyper-parameter law. Knows only names.

A rule is resolved to one number a run at plan time; the number, not the rule, determines the run.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from scalewright.orchestrator.config.section import Number, Positive, Section, Text, describe_kind
from scalewright.orchestrator.config.values import choose, read_positive, show


class FixedRule(Section):
    """One rate for every size and budget."""

    rule: Literal["fixed"] = "fixed"
    lr: Positive


class PowerOverride(Section):
    """What a method changes in a power rule."""

    lr: Positive | None = None
    exponent: Number | None = None
    token_exponent: Number | None = None


class PowerRule(Section):
    """lr = lr * (N / N0)^-exponent * (D / D0)^-token_exponent, N non-embedding parameters, D training tokens."""

    rule: Literal["power"]
    lr: Positive
    at: Text
    exponent: Number
    token_exponent: Number = 0.0
    tokens_at: Positive | None = None
    methods: dict[str, PowerOverride] = {}


def read_table(value: Any) -> Any:
    """Read numbers in a mapping of mappings; keys are labels, sizes, budgets or `default`."""
    if isinstance(value, dict) and value:
        return {str(key): read_table(item) for key, item in value.items()}
    if isinstance(value, dict | list) or value is None:
        raise ValueError(f"expected a rate or a mapping of rates, got {describe_kind(value)}")
    return read_positive(value)


class TableRule(Section):
    """Rates looked up by method label, size and budget, in any nesting; `default` stands for the rest."""

    rule: Literal["table"]
    values: Annotated[dict[str, Any], BeforeValidator(read_table)]


class TunedRule(TableRule):
    """Rates that the sweep of `tune:` gave, by method label and size; `sweep` is its experiment."""

    rule: Literal["tuned"]  # type: ignore[assignment]
    sweep: Text


class LawRule(Section):
    """lr = c * N^p * D^q from a stored hyper-parameter fit, by its name."""

    rule: Literal["law"]
    law: Text


RATE_RULES: dict[str, type[Section]] = {"fixed": FixedRule, "table": TableRule, "power": PowerRule, "law": LawRule}


def read_rule(value: Any) -> Any:
    """Complete the short forms: a number is a fixed rule, a mapping without `rule` is a table."""
    if isinstance(value, Section):
        return value
    if isinstance(value, list):
        raise ValueError("a list of rates is an axis of the grid; write grid: [{ lr: [0.01, 0.02] }]")
    if not isinstance(value, dict):
        return {"rule": "fixed", "lr": value}
    if "rule" not in value:
        return {"rule": "table", "values": value}
    choose(value["rule"], list(RATE_RULES), "learning-rate rule")
    return value


RateRule = Annotated[
    Annotated[FixedRule | TableRule | PowerRule | LawRule, Field(discriminator="rule")], BeforeValidator(read_rule)
]


@dataclass(frozen=True)
class RatePlace:
    """Where a rate is asked for: names as the YAML has them, N non-embedding parameters, D training tokens."""

    label: str
    method: str
    size: str
    budget: str
    n_params: int
    n_tokens: int


@dataclass(frozen=True)
class RateLaw:
    """A stored law lr = coefficient * N^n_exponent * D^d_exponent of one method, with the fit it came from."""

    coefficient: float
    n_exponent: float
    d_exponent: float
    fit_id: str


LawLookup = Callable[[str, str], RateLaw]  # (name of the law, method label) -> law; raises ValueError


def no_laws(name: str, label: str) -> RateLaw:
    """Know no stored law: what a plan without a database asks."""
    raise ValueError(f'no stored learning-rate law "{name}" for {label}')


def resolve_rate(rule: Any, place: RatePlace, *, n_params_of: Mapping[str, int], laws: LawLookup) -> float:
    """Return the peak learning rate at `place`; raise ValueError where the rule says nothing about it."""
    if isinstance(rule, FixedRule):
        return rule.lr
    if isinstance(rule, TableRule):
        return _look_up(rule.values, place)
    if isinstance(rule, PowerRule):
        return _power_rate(rule, place, n_params_of)
    law = laws(rule.law, place.label)
    return float(law.coefficient * place.n_params**law.n_exponent * place.n_tokens**law.d_exponent)


def _look_up(table: Any, place: RatePlace) -> float:
    names = (place.label, place.method, place.size, place.budget, "default")
    while isinstance(table, dict):
        key = next((name for name in names if name in table), None)
        if key is None:
            raise ValueError(
                f"the table has no rate for method {place.label}, size {place.size}, budget {place.budget}; "
                f"it knows {', '.join(table)} (add one, or `default`)"
            )
        table = table[key]
    return float(table)


def _power_rate(rule: PowerRule, place: RatePlace, n_params_of: Mapping[str, int]) -> float:
    own = rule.methods.get(place.label) or rule.methods.get(place.method) or PowerOverride()
    peak = rule.lr if own.lr is None else own.lr
    exponent = rule.exponent if own.exponent is None else own.exponent
    token_exponent = rule.token_exponent if own.token_exponent is None else own.token_exponent
    n_params_at = n_params_of[rule.at] if rule.at in n_params_of else read_positive(rule.at)
    token_factor = (place.n_tokens / rule.tokens_at) ** -token_exponent if rule.tokens_at else 1.0
    return float(f"{peak * (place.n_params / n_params_at) ** -exponent * token_factor:.6g}")


def names_of(rule: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (key path below the rule, name) of every method, size or budget that the rule mentions."""
    if isinstance(rule, TableRule):
        yield from _table_names(rule.values, ())
    if isinstance(rule, PowerRule):
        yield from ((("methods", name), name) for name in rule.methods)


def _table_names(table: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, value in table.items() if isinstance(table, dict) else ():
        yield (*path, name), name
        yield from _table_names(value, (*path, name))


def describe_rule(rule: Any) -> str:
    """Name the rule with its numbers, for the run's record."""
    if isinstance(rule, TunedRule):
        return f"tuned: {rule.sweep}"
    if isinstance(rule, PowerRule):
        return f"power: lr {rule.lr:g} at {rule.at}, exponent {rule.exponent:g}"
    if isinstance(rule, LawRule):
        return f"law {show(rule.law)}"
    return f"fixed: lr {rule.lr:g}" if isinstance(rule, FixedRule) else "table"


def is_shared(rule: Any, methods: Collection[str]) -> bool:
    """Tell whether the rule speaks of no method, so that all but one of `methods` (by label or name) borrow it."""
    return not isinstance(rule, LawRule) and not any(name in methods for _, name in names_of(rule))


# What is used where the YAML names no rate: the best ones seen with bytes, context 128 and about 0.5M tokens were near
# 0.02 at 55k parameters and fall with size. No claim beyond that; a plan that uses it warns.
DEFAULT_RULE = PowerRule(rule="power", lr=0.02, at="55k", exponent=0.33)
