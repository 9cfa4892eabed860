"""The pydantic base of every section of an experiments.yaml, its value types, and its errors in one line each."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from scalewright.orchestrator.config import values
from scalewright.orchestrator.config.yaml_text import KeyPath, YamlText
from scalewright.orchestrator.errors import UserError

LONGEST_NAME = 100


class Section(BaseModel):
    """A mapping in the YAML; a key that is not declared is refused with the nearest valid one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def refuse_unknown_keys(cls, value: Any) -> Any:
        """Refuse a key that the section does not know, with the nearest known one; nothing means all defaults."""
        if value is None:
            return {}
        if isinstance(value, BaseModel):
            return value
        keys = [field.alias or name for name, field in cls.model_fields.items() if not field.exclude]
        hidden = [name for name, field in cls.model_fields.items() if field.exclude and name != "source"]
        if not isinstance(value, dict):
            raise ValueError(f"expected a mapping with keys like {', '.join(keys[:4])}; got {values.show(value)}")
        for key in value:
            if key in hidden or key not in keys and key not in cls.model_fields:
                raise PydanticCustomError("unknown_key", f"unknown key{values.suggest(key, keys)}", {"key": key})
        return value


def read_text(value: Any) -> str:
    """Read one line of printable text; ValueError otherwise."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a text, got {describe_kind(value)}")
    if not value.isprintable():
        raise ValueError(f"{values.show(value)} must be one line of printable text")
    return value


def read_name(value: Any) -> str:
    """Read a name that may also name a file."""
    name = read_text(value)
    if not set("/\\:").isdisjoint(name) or name.startswith(".") or len(name) > LONGEST_NAME:
        raise ValueError(f"{values.show(name)} must be a name without / \\ or :, of at most {LONGEST_NAME} characters")
    return name


def read_options(value: Any) -> dict[str, Any]:
    """Read options of a method, gate or init by name: numbers and truths from their text, the rest as it is."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"expected a mapping of option: value, got {describe_kind(value)}")
    return {str(key): values.guess(item) for key, item in value.items()}


def read_many(value: Any) -> tuple[Any, ...]:
    """Read a list, or one item that stands for a list of one."""
    many = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not many or many == (None,):
        raise ValueError("must hold at least one item")
    return many


def read_list(value: Any) -> tuple[Any, ...]:
    """Read a list that may be empty, or one item that stands for a list of one."""
    return () if value is None or value == [] else read_many(value)


def read_limit(value: Any) -> float | None:
    """Read a positive number; 0, `none` and `off` are no limit."""
    if value is None or str(value).lower() in ("none", "off", "no", "null"):
        return None
    return values.read_not_negative(value) or None


def one_of(*valid: str, what: str) -> Callable[[Any], str]:
    """Return a reader that takes one of the `valid` names; `what` names it in its error."""
    return partial(values.choose, valid=valid, what=what)


def describe_kind(value: Any) -> str:
    """Say what a value is in the words of YAML, for errors."""
    kinds = {dict: "a mapping", list: "a list", type(None): "nothing"}
    return kinds.get(type(value), values.show(value))


Text = Annotated[str, BeforeValidator(read_text)]
Name = Annotated[str, BeforeValidator(read_name)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(read_list)]
Count = Annotated[int, BeforeValidator(values.read_positive_count)]
Whole = Annotated[int, BeforeValidator(values.read_count)]
Number = Annotated[float, BeforeValidator(values.read_number)]
NotNegative = Annotated[float, BeforeValidator(values.read_not_negative)]
Positive = Annotated[float, BeforeValidator(values.read_positive)]
Share = Annotated[float, BeforeValidator(values.read_fraction)]
BelowOne = Annotated[float, BeforeValidator(values.read_below_one)]
Limit = Annotated[float | None, BeforeValidator(read_limit)]
Truth = Annotated[bool, BeforeValidator(values.read_truth)]
Duration = Annotated[float, BeforeValidator(values.read_duration_s)]
Extent = Annotated[values.Extent, BeforeValidator(values.read_extent)]
Budget = Annotated[values.Budget, BeforeValidator(values.read_budget)]
Options = Annotated[dict[str, Any], BeforeValidator(read_options)]


def explain(error: ValidationError, source: YamlText, within: KeyPath = ()) -> UserError:
    """Turn pydantic's findings into one line: the first by line number, and how many more there are."""
    found = [_describe_finding(dict(finding), source, within) for finding in error.errors(include_url=False)]
    path, message = min(found, key=lambda finding: source.line(finding[0]))
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return source.error(path, message + more)


def _describe_finding(finding: dict[str, Any], source: YamlText, within: KeyPath) -> tuple[KeyPath, str]:
    context = finding.get("ctx", {})
    path = written_path((*within, *finding["loc"]), source.value)
    if "key" in context:
        return (*path, context["key"]), finding["msg"]
    if finding["type"] == "missing":
        return (*path, finding["loc"][-1]), "this key is missing"
    if "error" in context:
        return path, str(context["error"])
    return path, f"{finding['msg'][:1].lower()}{finding['msg'][1:]}, got {describe_kind(finding['input'])}"


def written_path(found: KeyPath, tree: Any) -> KeyPath:
    """Map pydantic's location to what was written, where a short form (a list, one text) stands for a longer one."""
    path: list[str | int] = []
    for step in found:
        children = _named_children(tree)
        if isinstance(tree, dict) and isinstance(step, int) and step < len(tree):
            step = list(tree)[step]
        if isinstance(tree, list) and isinstance(step, str) and step in tree:
            step = tree.index(step)
        if step in children:
            path, tree = [*path, step], children[step]
    return tuple(path)


def _named_children(tree: Any) -> dict[str | int, Any]:
    if isinstance(tree, dict):
        return tree
    return dict(enumerate(tree)) if isinstance(tree, list) else {}
