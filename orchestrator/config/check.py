"""Whether the names in an Experiment refer to something and its shapes can be built. Knows the tables of models."""

from collections.abc import Iterable, Iterator
from typing import Any

from scalewright.orchestrator.config.experiment import Experiment, Method, Size
from scalewright.orchestrator.config.rates import PowerRule, TableRule, names_of
from scalewright.orchestrator.config.recipes import RECIPES
from scalewright.orchestrator.config.values import choose, read_positive
from scalewright.orchestrator.config.yaml_text import KeyPath

PLAIN_METHOD = "pre-ln"  # the shape alone, when a size is checked or a budget counts its parameters
ANY_VOCAB_SIZE = 256


def check_names(experiment: Experiment) -> None:
    """Raise UserError at the first name that refers to nothing or the first shape that cannot be built."""
    _check_data(experiment)
    _check_labels(experiment)
    _check_recipes(experiment)
    _check_rates(experiment)
    _check_grid(experiment)
    _check_comparisons(experiment)
    _check_resources(experiment)
    check_shapes(experiment)


def _check_name(experiment: Experiment, path: KeyPath, name: str, valid: Iterable[str], what: str) -> None:
    try:
        choose(name, list(valid), what)
    except ValueError as error:
        raise experiment.source.error(path, str(error)) from None


def method_path(experiment: Experiment, place: int) -> KeyPath:
    """Return the key path of the method at `place`, as it was written: mapping, list or single name."""
    written = experiment.source.value["methods"]
    if isinstance(written, dict):
        return ("methods", list(written)[place])
    return ("methods", place) if isinstance(written, list) else ("methods",)


def _check_data(experiment: Experiment) -> None:
    data, error = experiment.data, experiment.source.error
    for key in sorted(data.model_fields_set - {"dir"}) if data.dir else ():
        raise error(("data", key), f'not beside dir: the folder "{data.dir}" holds shards that are made already')
    if data.tokenizer == "bpe" and data.vocab_size is None:
        raise error(("data", "tokenizer"), "a bpe tokenizer needs its size, for example vocab_size: 4096")
    if data.tokenizer != "bpe" and data.vocab_size is not None:
        raise error(("data", "vocab_size"), f'only for tokenizer: bpe; "{data.tokenizer}" has its own size')


def _check_labels(experiment: Experiment) -> None:
    labels = experiment.labels
    for place, label in enumerate(labels):
        if label in labels[:place]:
            message = f'a second method with the label "{label}"; give each a `label:` of its own'
            raise experiment.source.error(method_path(experiment, place), message)


def _check_recipes(experiment: Experiment) -> None:
    for name, recipe in experiment.recipes.items():
        _check_name(experiment, ("recipes", name, "base"), recipe.base, RECIPES, "recipe")
    for place, method in enumerate(experiment.methods):
        if method.recipe:
            path = (*method_path(experiment, place), "recipe")
            _check_name(experiment, path, method.recipe, [*experiment.recipes, *RECIPES], "recipe")


def _check_rates(experiment: Experiment) -> None:
    for path, rule in _all_rules(experiment):
        inner: KeyPath = ("values",) if isinstance(rule, TableRule) and experiment.source.at((*path, "values")) else ()
        for below, name in names_of(rule):
            _check_name(experiment, (*path, *inner, *below), name, _rate_names(experiment), "method, size or budget")
        if isinstance(rule, PowerRule):
            _check_reference(experiment, path, rule)


def _all_rules(experiment: Experiment) -> Iterator[tuple[KeyPath, Any]]:
    yield ("lr",), experiment.lr
    for place, method in enumerate(experiment.methods):
        yield (*method_path(experiment, place), "lr"), method.lr


def _rate_names(experiment: Experiment) -> list[str]:
    methods = [method.method for method in experiment.methods]
    return [*dict.fromkeys([*experiment.labels, *methods, *experiment.sizes, *experiment.budgets, "default"])]


def _check_reference(experiment: Experiment, path: KeyPath, rule: PowerRule) -> None:
    if rule.at not in experiment.sizes:
        try:
            read_positive(rule.at)
        except ValueError:
            _check_name(experiment, (*path, "at"), rule.at, experiment.sizes, "size or number of parameters")


def _check_grid(experiment: Experiment) -> None:
    for place, group in enumerate(experiment.grid):
        path: KeyPath = ("grid", place) if isinstance(experiment.source.at(("grid",)), list) else ("grid",)
        _check_axes(experiment, path, group.axes)
        _check_axes(experiment, (*path, "zip"), group.zip)
        for number, selector in enumerate(group.exclude):
            _check_axes(experiment, (*path, "exclude", number), selector.axes)
    for key, selectors in (("exclude", experiment.exclude), ("holdout", experiment.holdout)):
        for number, selector in enumerate(selectors):
            _check_axes(experiment, (key, number), selector.axes)


def _check_axes(experiment: Experiment, path: KeyPath, axes: dict[str, tuple[object, ...]]) -> None:
    declared: dict[str, Iterable[str]] = {
        "size": experiment.sizes,
        "budget": experiment.budgets,
        "method": experiment.labels,
    }
    for axis, names in declared.items():
        for name in axes.get(axis, ()):
            _check_name(experiment, (*path, axis), str(name), names, axis)


def _check_comparisons(experiment: Experiment) -> None:
    for place, pair in enumerate(experiment.compare):
        for label in (pair.method, pair.baseline):
            _check_name(experiment, ("compare", place), label, experiment.labels, "method")


def _check_resources(experiment: Experiment) -> None:
    for place, rule in enumerate(experiment.resources.rules):
        path: KeyPath = ("resources", "rules", place)
        _check_name(experiment, (*path, "use"), rule.use, experiment.resources.profiles, "profile")
        for size in rule.sizes or ():
            _check_name(experiment, (*path, "sizes"), size, experiment.sizes, "size")
        for label in rule.methods or ():
            _check_name(experiment, (*path, "methods"), label, experiment.labels, "method")


def check_shapes(experiment: Experiment) -> None:
    """Build every model's spec once: first the sizes alone, then each method at each size."""
    for name, size in experiment.sizes.items():
        _try_spec(experiment, ("sizes", name), size, Method(method=PLAIN_METHOD))
    for place, method in enumerate(experiment.methods):
        path = method_path(experiment, place)
        _check_tables(experiment, path, method)
        for size in experiment.sizes.values():
            _try_spec(experiment, path, size, method)


def _check_tables(experiment: Experiment, path: KeyPath, method: Method) -> None:
    from scalewright.models.gating import GATES
    from scalewright.models.inits import INITS
    from scalewright.models.methods import METHODS

    in_full = isinstance(experiment.source.at(path), dict)
    tables: dict[str, Iterable[str]] = {"method": METHODS, "gate": GATES, "init": INITS}
    for key, table in tables.items():
        name = getattr(method, key)
        if name is not None:
            _check_name(experiment, (*path, key) if in_full else path, name, table, key)


def _try_spec(experiment: Experiment, path: KeyPath, size: Size, method: Method) -> None:
    from scalewright.models.errors import ModelError
    from scalewright.orchestrator.config.models import model_spec

    try:
        model_spec(size, method, context=max(experiment.context), vocab_size=ANY_VOCAB_SIZE)
    except ModelError as error:
        raise experiment.source.error(path, str(error)) from None
