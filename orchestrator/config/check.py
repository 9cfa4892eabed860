"""Whether the names in an Experiment refer to something and its shapes can be built. Knows the tables of models."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from scalewright.orchestrator.config.axes import AXES, Selector
from scalewright.orchestrator.config.experiment import Experiment, Method, Size
from scalewright.orchestrator.config.ladder import shape_of
from scalewright.orchestrator.config.models import ANY_VOCAB_SIZE, PLAIN_METHOD
from scalewright.orchestrator.config.rates import PowerRule, TableRule, names_of
from scalewright.orchestrator.config.recipes import RECIPES
from scalewright.orchestrator.config.values import choose, read_positive
from scalewright.orchestrator.config.yaml_text import KeyPath

PLANNED_NUMBERS = ("n_params", "n_params_total", "n_tokens", "flops", "width", "depth", "heads")


def check_names(experiment: Experiment) -> None:
    """Raise UserError at the first name that refers to nothing or the first shape that cannot be built."""
    _check_axes_given(experiment)
    _check_data(experiment)
    _check_labels(experiment)
    _check_recipes(experiment)
    _check_rates(experiment)
    _check_tune(experiment)
    _check_grid(experiment)
    _check_comparisons(experiment)
    _check_resources(experiment)
    _check_trunk(experiment)
    check_shapes(experiment)


def _check_axes_given(experiment: Experiment) -> None:
    """There are sizes and budgets, or isoFLOP curves, which have their own."""
    isoflop, error = experiment.isoflop, experiment.source.error
    given = {"sizes": bool(experiment.sizes), "budgets": bool(experiment.budgets)}
    for key, there in given.items():
        if not there and (isoflop is None or any(given.values())):
            raise error((key,), "this key is missing")
    if isoflop is None:
        return
    if isoflop.law is None and isoflop.method is not None:
        raise error(("isoflop", "method"), "whose law? only beside `law`")
    if isoflop.law is not None and "centre" in isoflop.model_fields_set:
        raise error(("isoflop", "centre"), "not beside `law`, whose optimum is the middle")
    if isoflop.span <= 1:
        raise error(("isoflop", "span"), f"{isoflop.span:g} must be greater than 1: the largest size over the smallest")
    names = [budget.text for budget in isoflop.budgets]
    twice = next((name for name in names if names.count(name) > 1 or name in experiment.budgets), None)
    if twice:
        raise error(("isoflop", "budgets"), f"a second budget of the name {twice}")


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
            message = f'a second method with the label "{label}"; give each another `label:`'
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


def _check_tune(experiment: Experiment) -> None:
    tune, error = experiment.tune, experiment.source.error
    if tune is None:
        return
    if experiment.lr is not None:
        raise error(("lr",), "not beside `tune:`, which finds the rates; a method may set another `lr`")
    if all(method.lr is not None for method in experiment.methods):
        raise error(("tune",), "every method sets an `lr`: there is nothing to sweep")
    shared = sorted(experiment.all_seeds & set(tune.seeds or ()))
    if shared:
        raise error(("tune", "seeds"), f"seed {shared[0]} is one of the grid's; give others")
    if any("lr" in group.axes or "lr" in group.zip for group in experiment.grid):
        raise error(("tune",), "a group of the grid sets rates; sweep by `tune:` or by an axis, not by both")
    for size in tune.at:
        _check_name(experiment, ("tune", "at"), size, experiment.sizes, "size")
    if tune.budget:
        _check_name(experiment, ("tune", "budget"), tune.budget, experiment.budgets, "budget")


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
    kinds = condition_kinds(experiment)
    _check_conditions(experiment, ("when",), experiment.when, kinds)
    for place, group in enumerate(experiment.grid):
        path: KeyPath = ("grid", place) if isinstance(experiment.source.at(("grid",)), list) else ("grid",)
        _check_axes(experiment, path, group.axes)
        _check_axes(experiment, (*path, "zip"), group.zip)
        _check_conditions(experiment, (*path, "when"), group.when, kinds)
        _check_selectors(experiment, (*path, "exclude"), group.exclude, kinds)
    _check_selectors(experiment, ("exclude",), experiment.exclude, kinds)
    _check_selectors(experiment, ("holdout",), experiment.holdout, kinds)


def _check_selectors(
    experiment: Experiment, path: KeyPath, selectors: Iterable[Selector], kinds: Mapping[str, str]
) -> None:
    for number, selector in enumerate(selectors):
        _check_axes(experiment, (*path, number), selector.axes)
        if selector.condition is not None:
            _check_conditions(experiment, (*path, number), (selector.condition,), kinds)


def _check_conditions(
    experiment: Experiment, path: KeyPath, written: tuple[str, ...], kinds: Mapping[str, str]
) -> None:
    if not written:
        return
    from scalewright.db.errors import DbError
    from scalewright.db.where import parse_condition

    for number, condition in enumerate(written):
        try:
            parse_condition(condition, kinds, kinds)
        except DbError as error:
            at = (*path, number) if isinstance(experiment.source.at(path), list) else path
            raise experiment.source.error(at, str(error)) from None


def condition_kinds(experiment: Experiment) -> dict[str, str]:
    """Return what conditions may speak of: axes, options that the grid varies, and numbers that follow from them."""
    varied = {axis for group in experiment.grid for axis in (*group.axes, *group.zip)}
    texts = dict.fromkeys(("size", "budget", "method", "precision"), "text")
    numbers = dict.fromkeys([*(axis for axis in AXES if axis not in texts), *PLANNED_NUMBERS], "number")
    return texts | numbers | {axis: "" for axis in sorted(varied) if axis not in AXES}


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


def _check_trunk(experiment: Experiment) -> None:
    """Runs of a trunk go one after another in their job."""
    side_by_side = [name for name, one in experiment.resources.profiles.items() if one.at_once > 1]
    if experiment.shared_trunk and side_by_side:
        path: KeyPath = ("resources", "profiles", side_by_side[0], "at_once")
        raise experiment.source.error(path, "not with shared_trunk, whose runs go one after another")


def check_shapes(experiment: Experiment) -> None:
    """Build every model's spec once: first the sizes alone, then each method at each size."""
    shapes = dict(experiment.sizes)
    if experiment.isoflop:
        shapes[""] = shape_of(1, 1, experiment.isoflop)  # its sizes follow from the data's vocabulary
    for name, size in shapes.items():
        path: KeyPath = ("sizes", name) if experiment.source.at(("sizes", name)) else ("ladder",)
        _try_spec(experiment, path if name else ("isoflop",), size, Method(method=PLAIN_METHOD))
    for place, method in enumerate(experiment.methods):
        path = method_path(experiment, place)
        _check_tables(experiment, path, method)
        for size in shapes.values():
            _try_spec(experiment, path, size, method)


def _check_tables(experiment: Experiment, path: KeyPath, method: Method) -> None:
    from scalewright.models.gating import GATES
    from scalewright.models.inits import INITS
    from scalewright.models.methods import METHODS
    from scalewright.models.own import is_own

    in_full = isinstance(experiment.source.at(path), dict)
    tables: dict[str, Iterable[str]] = {"method": METHODS, "gate": GATES, "init": INITS}
    for key, table in tables.items():
        name = getattr(method, key)
        if name is not None and not is_own(name):
            _check_name(experiment, (*path, key) if in_full else path, name, table, key)


def _try_spec(experiment: Experiment, path: KeyPath, size: Size, method: Method) -> None:
    from scalewright.models.errors import ModelError
    from scalewright.orchestrator.config.models import model_spec

    try:
        model_spec(size, method, context=max(experiment.context), vocab_size=ANY_VOCAB_SIZE)
    except ModelError as error:
        raise experiment.source.error(path, str(error)) from None
