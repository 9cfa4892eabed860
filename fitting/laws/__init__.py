"""The laws by name: where each stands. What a law must offer is in `Law`. The names alone cost no numpy."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scalewright.fitting.laws.interface import Law


class LawTable(Mapping[str, "Law"]):
    """Laws by name; each is imported when it is looked up. `targets` says where it is: "module:CONSTANT"."""

    def __init__(self, targets: dict[str, str]) -> None:
        self.targets = targets
        self.added: dict[str, Law] = {}

    def add(self, law: "Law") -> None:
        """Take in a law for this process. Raises ValueError where one of its name stands here."""
        if law.name in self.targets:
            raise ValueError(f"a law named {law.name!r} is known; give yours another name")
        self.added[law.name] = law

    def __getitem__(self, name: str) -> "Law":
        if name in self.added:
            return self.added[name]
        module, _, constant = self.targets[name].partition(":")
        law: Law = getattr(import_module(f"{__name__}.{module}"), constant)
        return law

    def __contains__(self, name: object) -> bool:
        return name in self.targets or name in self.added

    def __iter__(self) -> Iterator[str]:
        return iter((*self.targets, *self.added))

    def __len__(self) -> int:
        return len(self.targets) + len(self.added)


LAWS = LawTable(
    {
        "chinchilla": "sums:CHINCHILLA",
        "chinchilla-shared": "sums:SHARED",
        "equal-exponents": "sums:EQUAL",
        "power": "sums:POWER",
        "pure-power": "sums:PURE_POWER",
        "power-shared": "sums:POWER_SHARED",
        "size": "sums:SIZE",
        "tokens": "sums:TOKENS",
        "width-depth": "sums:WIDTH_DEPTH",
        "kaplan": "kaplan:KAPLAN",
        "farseer": "farseer:FARSEER",
        "broken": "broken:BROKEN",
        "repeated-data": "repeated:REPEATED",
    }
)
