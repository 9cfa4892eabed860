"""YAML 1.2 text -> plain values that remember their line. Knows no key of any experiment. No heavy import at the top.

Every scalar stays the text that the person wrote (or None): its meaning depends on the type that its place declares,
so `1e-3`, `3e9`, `12:30:00` and `27k` are never guessed here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scalewright.orchestrator.errors import UserError

KeyPath = tuple[str | int, ...]
MAX_MERGES = 20  # mappings merged into mappings
MAX_NODES = 200_000  # aliases can repeat a node; a file that expands beyond this is an attack or an accident


@dataclass(frozen=True)
class YamlText:
    """One parsed file: `value` (dicts, lists, texts, None) and the line of every key path.

    inherited: of each key at the top that another file gave, that file.
    """

    file: str
    text: str
    value: Any
    lines: dict[KeyPath, int] = field(repr=False)
    inherited: Mapping[str, "YamlText"] = field(default_factory=dict, repr=False)

    def over(self, base: "YamlText", *, without: str) -> "YamlText":
        """Add the top keys of `base` that this file lacks, all but one. The text is that of both, as two documents."""
        added = [key for key in base.value if key not in (*self.value, without)]
        value = {key: base.value[key] for key in added} | self.value
        inherited = {key: base.inherited.get(key, base) for key in added}
        return YamlText(self.file, f"{self.text.rstrip()}\n---\n{base.text}", value, self.lines, inherited)

    def line(self, path: Sequence[str | int]) -> int:
        """Return the line of `path`, or of the nearest enclosing key that was written."""
        known = tuple(path)
        if known and known[0] in self.inherited:
            return self.inherited[str(known[0])].line(path)
        while known and known not in self.lines:
            known = known[:-1]
        return self.lines.get(known, 1)

    def at(self, path: Sequence[str | int]) -> Any:
        """Return what was written at `path`, or None."""
        value = self.value
        for step in path:
            inside = isinstance(value, dict) and step in value or isinstance(value, list) and step in range(len(value))
            if not inside:
                return None
            value = value[step]
        return value

    def error(self, path: Sequence[str | int], message: str) -> UserError:
        """Make the error for a value: file, line, key path and the message."""
        if path and path[0] in self.inherited:
            return self.inherited[str(path[0])].error(path, message)
        where = f"{name_path(path)}: " if path else ""
        return UserError(f"{self.file}:{self.line(path)}: {where}{message}")


def name_path(path: Sequence[str | int]) -> str:
    """Write a key path as a person would: `methods[1].gate`."""
    name = ""
    for step in path:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else step
    return name


def parse_yaml(text: str, file: str) -> YamlText:
    """Parse one YAML document; raise UserError with file and line for bad syntax and for a key given twice."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        raise describe_syntax(error, file) from None
    except YAMLError as error:
        raise UserError(f"{file}:1: not valid YAML: {' '.join(str(error).split())}") from None
    reader = NodeReader(file)
    return YamlText(file, text, None if root is None else reader.read(root, ()), reader.lines)


SYNTAX_HINTS = {
    "'\\t'": "a tab cannot indent; use spaces",
    "mapping values are not allowed": "unexpected ':' (quote a text that holds ': ', or start a new line)",
    "another document": "a second document ('---'); write one experiment a file",
}
UNCLOSED = {
    "while parsing a flow sequence": "this '[' is not closed",
    "while parsing a flow mapping": "this '{' is not closed",
    "while scanning a quoted scalar": "this quote is not closed",
}


def describe_syntax(error: Any, file: str) -> UserError:
    """Say what is wrong with the syntax in a person's words, at the line where it began."""
    problem, context = str(error.problem or ""), str(error.context or "")
    unclosed = next((words for start, words in UNCLOSED.items() if context.startswith(start)), None)
    mark = (error.context_mark if unclosed else None) or error.problem_mark or error.context_mark
    hint = next((words for part, words in SYNTAX_HINTS.items() if part in problem), f"{problem} {context}".strip())
    return UserError(f"{file}:{mark.line + 1 if mark else 1}: not valid YAML: {unclosed or hint}")


class NodeReader:
    """Walks the composed nodes of one document once."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[KeyPath, int] = {}
        self.open: list[int] = []
        self.n_nodes = 0

    def read(self, node: Any, path: KeyPath) -> Any:
        """Return a node as plain Python and note its line; UserError for an endless alias or a key given twice."""
        self.lines.setdefault(path, node.start_mark.line + 1)
        self.n_nodes += 1
        if id(node) in self.open or self.n_nodes > MAX_NODES:
            raise self._refuse(node, "an alias that contains itself, or too many of them")
        self.open.append(id(node))
        value = self._read_content(node, path)
        self.open.pop()
        return value

    def _read_content(self, node: Any, path: KeyPath) -> Any:
        if node.id == "scalar":
            return None if node.tag.endswith(":null") else str(node.value)
        if node.id == "sequence":
            return [self.read(item, (*path, place)) for place, item in enumerate(node.value)]
        return self._read_mapping(node, path)

    def _read_mapping(self, node: Any, path: KeyPath) -> dict[str, Any]:
        own: dict[str, Any] = {}
        for key_node, value_node in _plain_items(node):
            if (key := self._read_key(key_node)) in own:
                raise self._refuse(key_node, f"the key {name_path((*path, key))} is given twice")
            self._read_item(own, key_node, value_node, path)
        for merged in self.merged_mappings(node):
            for key_node, value_node in _plain_items(merged):
                if self._read_key(key_node) not in own:
                    self._read_item(own, key_node, value_node, path)
        return own

    def _read_item(self, own: dict[str, Any], key_node: Any, value_node: Any, path: KeyPath) -> None:
        key = str(key_node.value)
        self.lines[(*path, key)] = key_node.start_mark.line + 1
        own[key] = self.read(value_node, (*path, key))

    def _read_key(self, node: Any) -> str:
        if node.id != "scalar":
            raise self._refuse(node, "a key must be a plain text")
        return str(node.value)

    def merged_mappings(self, node: Any, depth: int = 0) -> Iterator[Any]:
        """Yield what `<<` brings in, nearest first, and what that brings in itself."""
        for key_node, value_node in node.value:
            if _is_merge(key_node):
                for merged in value_node.value if value_node.id == "sequence" else [value_node]:
                    if merged.id != "mapping" or depth > MAX_MERGES:
                        raise self._refuse(merged, "'<<' takes a mapping, or a list of mappings")
                    yield merged
                    yield from self.merged_mappings(merged, depth + 1)

    def _refuse(self, node: Any, message: str) -> UserError:
        return UserError(f"{self.file}:{node.start_mark.line + 1}: {message}")


def _plain_items(node: Any) -> Iterator[tuple[Any, Any]]:
    return (item for item in node.value if not _is_merge(item[0]))


def _is_merge(key_node: Any) -> bool:
    return key_node.id == "scalar" and str(key_node.tag).endswith(":merge")
