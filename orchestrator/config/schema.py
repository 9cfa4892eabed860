"""The JSON schema of an experiments.yaml, which editors complete and check with. From the types of the sections.

A reader of values (a BeforeValidator) takes more than the type behind it: what may be written stands here, by reader.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from scalewright.models.gating import GATES
from scalewright.models.inits import INITS
from scalewright.models.methods import METHODS
from scalewright.orchestrator.config import axes, experiment, rates, resources, section, shapes, training, tune, values
from scalewright.orchestrator.config.recipes import RECIPES

REFER = "refer to"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
DIGITS = r"[+-]?(\d[\d_]*\.?\d*|\.\d+)([eE][+-]?\d+)?"
AMOUNT = rf"^{DIGITS}\s*({'|'.join(unit for unit in values.MULTIPLIERS if unit)})?$"


def _form(words: str, *alternatives: JsonSchemaValue) -> JsonSchemaValue:
    return {"anyOf": list(alternatives), "description": words} if len(alternatives) > 1 else alternatives[0]


def _refer(name: str) -> JsonSchemaValue:
    """Refer to a definition of this module; pydantic, which knows its own alone, must not see a reference yet."""
    return {REFER: name}


def _resolved(schema: Any) -> Any:
    """Put references in the place of what `_refer` left."""
    if isinstance(schema, dict):
        found = {"$ref": f"#/$defs/{schema[REFER]}"} if REFER in schema else {}
        return found | {key: _resolved(value) for key, value in schema.items() if key != REFER}
    return [_resolved(value) for value in schema] if isinstance(schema, list) else schema


def _text(pattern: str | None = None) -> JsonSchemaValue:
    return {"type": "string"} | ({"pattern": pattern} if pattern else {})


NUMBER, WHOLE, NOTHING = {"type": "number"}, {"type": "integer"}, {"type": "null"}
_count = _form("a whole number: 131072, 131_072, 20k, 128Ki", WHOLE, _text(AMOUNT))
_positive = _form("a number: 1e-3, 0.02, 20k, 0.5M", NUMBER, _text(AMOUNT))
_share = _form("a share: 10% or 0.1", {"type": "number", "minimum": 0, "maximum": 1}, _text(rf"^{DIGITS}\s*%?$"))
_budget = _form("0.5M tokens, 20x (tokens per non-embedding parameter) or 1e15 FLOPs", NUMBER, _text())
_extent = _form("a part of the run: 10%, 100 steps or 20k tokens", _text(), {"const": 0})
_name = {"type": ["string", "number"]}
_options = {"type": ["object", "null"]}

# Readers whose written form is not that of the type behind them.
FORMS: dict[Callable[..., Any], JsonSchemaValue] = {
    section.read_text: _name,
    section.read_name: _name,
    section.read_options: _options,
    section.read_limit: _form("a number above 0; none is off", NUMBER, _text(), NOTHING, {"const": False}),
    values.read_positive_count: _count,
    values.read_count: _count,
    values.read_number: _positive,
    values.read_not_negative: _positive,
    values.read_positive: _positive,
    values.read_below_one: _positive,
    values.read_fraction: _share,
    values.read_truth: _form("true or false", {"type": "boolean"}, {"enum": list(values.TRUTHS)}),
    values.read_duration_s: _form("a length of time: 90min, 1h30m, 12:30:00", _text(), NUMBER),
    values.read_extent: _extent,
    values.read_budget: _budget,
    resources.read_time: _form("a length of time, or auto: from measured throughput", _text(), NUMBER, NOTHING),
    resources.read_memory: _form("memory with its unit: 8G, 512M; 0 is all", _text(), {"const": 0}, NOTHING),
    resources.read_pack: _form("runs of one job, or auto", WHOLE, {"const": "auto"}, NOTHING),
    resources.read_sbatch: _options,
    resources.read_executor: {"enum": list(resources.EXECUTORS)},
    rates.read_table: _refer("RateTable"),
    axes.read_axes: _refer("Axes"),
    shapes.read_steps: _count,
    shapes.read_head_dim: _count,
    shapes.read_centre: _budget,
    shapes.read_computes: _form("a compute or a list of them: 1e18", _budget, {"type": "array", "items": _budget}),
    tune.read_sweep: _form(
        "rates to try: a list, or log(LOWEST, HIGHEST, HOW MANY)",
        {"type": "array", "items": _positive},
        _text(r"^\s*log\("),
    ),
    training.read_corpora: {
        "type": "object",
        "additionalProperties": _form("a path or a list of them", _text(), {"type": "array", "items": _text()}),
        "description": "other texts by name, whose loss is measured at the end",
    },
    experiment.read_seeds: _form("a list of seeds, or how many", _count, {"type": "array", "items": _count}),
}
MEANS = {
    "experiment": "name in the database and in figures",
    "extends": "another file of this folder: each key that is not written here is taken from it, except the name",
    "data": "the corpus and how it becomes tokens; a path stands for its corpus",
    "sizes": "model shapes by name",
    "ladder": "sizes in equal ratios of non-embedding parameters",
    "budgets": "training tokens of a run: a list, or name: budget",
    "isoflop": "sizes and tokens at equal compute",
    "methods": "a list of names (gpt+), names with a gate (pre-ln+gpas) or mappings; or label: method",
    "seeds": "a list of seeds, or one number n for the seeds 0 to n-1",
    "batch": "sequences an optimiser step; a list is an axis of the grid",
    "context": "tokens a sequence; a list is an axis of the grid",
    "precision": "of training; a list is an axis of the grid",
    "lr": "peak learning rate: a number, a table by label, size and budget, or a rule",
    "tune": "a sweep of learning rates for each method before the grid",
    "lr_factor": "multiplies the rate of the rule; a list is an axis of the grid",
    "optimizer": "changes to the recipe's optimiser, for all methods",
    "schedule": "changes to the recipe's schedule, for all methods",
    "recipes": "recipes of your own by name: a known one and what changes in it",
    "grid": "groups of runs, each a product of its axes; without it everything is crossed with everything",
    "when": "conditions that all points meet: n_tokens / n_params < 200",
    "exclude": "points that are left out: axis: value, or a condition",
    "holdout": "points that are trained, never fitted, and predicted",
    "compare": "METHOD over BASELINE, by label: what speed-ups are computed for",
    "evaluation": "when the validation loss is measured besides at the end, on how many windows",
    "divergence": "when a run counts as diverged",
    "diagnostics": "when per-layer diagnostics are measured",
    "mirrors": "loggers that get copies of the metrics",
    "log_every": "steps between metrics",
    "checkpoint_every": "time between checkpoints",
    "compile": "torch.compile",
    "shared_trunk": "runs that differ in budget alone share their steps before the decay (schedule wsd)",
    "database": "path or URL; runs.sqlite beside this file unless given",
    "executor": "what starts jobs",
    "resources": "profiles of jobs and the rules that pick one",
    "max_parallel": "jobs at a time",
    "retry": "tries after an error",
    "notify": "a command that is run when the submission ends",
}


def _methods_form(method: JsonSchemaValue) -> JsonSchemaValue:
    one: JsonSchemaValue = {"anyOf": [_refer("MethodName"), method]}
    return {"anyOf": [one, {"type": "array", "items": one}, {"type": "object", "additionalProperties": one}]}


def _many(items: JsonSchemaValue, *more: JsonSchemaValue) -> JsonSchemaValue:
    return {"anyOf": [{"type": "array", "items": items}, items, *more]}


def _groups(group: JsonSchemaValue) -> JsonSchemaValue:
    return _many(_refer("WrittenGroup"))


# Readers that complete a short form: the schema from that of the type behind them.
SHORT: dict[Callable[..., Any], Callable[[JsonSchemaValue], JsonSchemaValue]] = {
    section.read_many: lambda inner: _many(_items(inner)),
    section.read_list: lambda inner: _many(_items(inner), NOTHING),
    axes.read_selectors: lambda inner: _many({"anyOf": [_text(), _refer("Axes")]}, NOTHING),
    axes.read_groups: _groups,
    rates.read_rule: lambda inner: {"anyOf": [_positive, inner, _refer("RateTable")]},
    experiment.read_sizes: lambda inner: inner,
    experiment.read_budgets: lambda inner: {"anyOf": [inner, *_many(inner["additionalProperties"])["anyOf"]]},
    experiment.read_methods: lambda inner: _methods_form(_items(inner)),
    experiment.read_pairs: lambda inner: _many({"anyOf": [_text(r"\S over \S"), _items(inner)]}, NOTHING),
    experiment.read_mirrors: lambda inner: _many(
        {"anyOf": [{"enum": list(experiment.MIRRORS)}, _items(inner)]}, NOTHING
    ),
    experiment.read_data: lambda inner: {"anyOf": [_text(), {"type": "array", "items": _text()}, inner]},
    experiment.read_at: lambda inner: {"anyOf": [*_many(_extent)["anyOf"], inner, NOTHING]},
}


def _items(inner: JsonSchemaValue) -> JsonSchemaValue:
    found: JsonSchemaValue = inner["items"]
    return found


class _Written(GenerateJsonSchema):
    """What may be written instead of what is read."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def function_before_schema(self, schema: Any) -> JsonSchemaValue:
        """Return the written form of a reader; ValueError for a reader that this module does not know."""
        reader = schema["function"]["function"]
        if reader in FORMS:
            return dict(FORMS[reader])
        if isinstance(reader, partial) and reader.func is values.choose:
            return {"enum": list(reader.keywords["valid"])}
        if reader in SHORT:
            return SHORT[reader](self.generate_inner(schema["schema"]))
        if getattr(reader, "__name__", "") == "refuse_unknown_keys":
            return self.generate_inner(schema["schema"])
        raise ValueError(f"{reader}: no written form of what it reads; add it to FORMS or SHORT")

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        """Let what a file never holds be anything: it is taken out of the schema."""
        return {}


def experiment_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of an experiments.yaml: keys, kinds of values, names, descriptions.

    A file that passes may still be refused by `plan`, which checks what names refer to.
    """
    schema = experiment.Experiment.model_json_schema(by_alias=True, schema_generator=_Written)
    definitions, properties = schema["$defs"], schema["properties"]
    definitions.pop("YamlText", None)
    for kind, shown in ((experiment.Experiment, properties), (experiment.Method, definitions["Method"]["properties"])):
        for name, field in kind.model_fields.items():
            if field.exclude:
                shown.pop(field.alias or name)
    for name, told in properties.items():
        told["description"] = MEANS[name]
        told.pop("title", None)
    _name_models(definitions)
    definitions |= _grid_definitions()
    schema["required"] = ["experiment"]
    needed = [{"required": ["methods"]}, {"required": ["extends"]}]
    written: dict[str, Any] = _resolved({"$schema": DRAFT} | schema | {"anyOf": needed})
    return written


def _name_models(definitions: dict[str, Any]) -> None:
    """Put in the names that tables of other rooms hold."""
    method = definitions["Method"]["properties"]
    own = {"type": "string", "pattern": r"\.py:\w+$", "description": "a constant of your own file: ./mine.py:MINE"}
    method["method"] = {"anyOf": [{"enum": list(METHODS)}, own]}
    method["gate"] = {"anyOf": [{"enum": list(GATES)}, own], "default": "none"}
    method["init"] = {"anyOf": [{"enum": list(INITS)}, NOTHING]}
    recipe: JsonSchemaValue = {"anyOf": [{"enum": list(RECIPES)}, _text()]}
    method["recipe"] = {"anyOf": [*recipe["anyOf"], NOTHING]}
    definitions["OwnRecipe"]["properties"]["base"] = recipe
    gates = [gate for gate in GATES if gate != "none"]
    names = [*METHODS, *(f"{name}+{gate}" for name in METHODS for gate in gates)]
    definitions["MethodName"] = {
        "anyOf": [{"enum": names}, {"type": "string", "pattern": r"\.py:\w"}],
        "description": "a method, and its gate after a plus",
    }


def _grid_definitions() -> dict[str, Any]:
    """Return what refers to itself, or is written in another way than it is read: rate tables, axes, groups."""
    value = {"type": ["string", "number", "boolean", "null"]}
    axis = _many(value)
    overrides = "|".join(start.replace(".", r"\.") for start in axes.OVERRIDES)
    all_axes = dict.fromkeys(axes.AXES, axis)
    open_axes = {"patternProperties": {f"^({overrides}).": {}}, "additionalProperties": False}
    group = axes.Group.model_json_schema(schema_generator=_Written)["properties"]
    own = {name: told for name, told in group.items() if name != "axes"}
    table = {"type": "object", "additionalProperties": {"anyOf": [_positive, _refer("RateTable")]}}
    return {
        "RateTable": table | {"description": "rates by label, size or budget, nested; default: the rest"},
        "Axes": {"type": "object", "properties": all_axes} | open_axes,
        "WrittenGroup": {
            "type": "object",
            "description": "a product of axes; those under zip advance together",
            "properties": all_axes | own,
        }
        | open_axes,
    }
