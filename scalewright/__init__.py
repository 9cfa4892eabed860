"""scalewright: does this change to the Transformer help, by how much, and does the gain hold?

From Python, `scalewright.open` gives the runs, losses, curves and fits of an experiment; docs/python.md shows the rest.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scalewright.face import Comparison, Experiment, Fit, compare, figure, fit, open  # noqa: A004

__all__ = ["Comparison", "Experiment", "Fit", "compare", "figure", "fit", "open"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import the public face at its first use: `import scalewright` alone imports nothing else."""
        if name not in __all__:
            raise AttributeError(f"module 'scalewright' has no attribute {name!r}; public: {', '.join(__all__)}")
        from scalewright import face

        return getattr(face, name)


def __dir__() -> list[str]:
    return __all__
