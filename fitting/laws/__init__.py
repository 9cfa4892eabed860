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

    def __getitem__(self, name: str) -> "Law":
        module, _, constant = self.targets[name].partition(":")
        law: Law = getattr(import_module(f"{__name__}.{module}"), constant)
        return law

    def __contains__(self, name: object) -> bool:
        return name in self.targets

    def __iter__(self) -> Iterator[str]:
        return iter(self.targets)

    def __len__(self) -> int:
        return len(self.targets)


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
