"""What looks wrong in points that can be read: units, losses, runs told twice. Each finding is one sentence."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scalewright.fitting.frame import LARGEST_LOSS

LEAST = {"n_params": 1e3, "n_tokens": 1e4}  # fewer parameters or tokens than any language model has
SAME_COMPUTE = 30.0  # factor between flops and 6 N D from which they are not in the same units
FEWEST = 8  # runs of a method from which a loss can be set against the others
FAR = 10.0  # robust standard deviations
FAR_SHARE = 0.1  # of the loss, under which nothing is called odd
MOST_NAMED = 5

Numbered = tuple[int, Mapping[str, Any]]  # a line and its values


def suspicions(rows: Sequence[Numbered]) -> list[str]:
    """Return what a person should look at before a law is fitted to these rows."""
    return [*_small_numbers(rows), *_strange_flops(rows), *_impossible_losses(rows), *odd_losses(rows)]


def _small_numbers(rows: Sequence[Numbered]) -> list[str]:
    found = []
    for name, least in LEAST.items():
        values = [row[name] for _, row in rows]
        if min(values) < least:
            found.append(
                f"{name} goes from {min(values):g} to {max(values):g}: too few for a language model. Are they counted "
                f"in millions or billions? Then say so: --units {name}=M or --units {name}=B"
            )
    return found


def _strange_flops(rows: Sequence[Numbered]) -> list[str]:
    ratios = sorted(row["flops"] / (6 * row["n_params"] * row["n_tokens"]) for _, row in rows if "flops" in row)
    middle = ratios[len(ratios) // 2] if ratios else 1.0
    if 1 / SAME_COMPUTE < middle < SAME_COMPUTE:
        return []
    return [f"flops are {middle:.3g} times 6 n_params n_tokens: do the three columns count in the same units?"]


def _impossible_losses(rows: Sequence[Numbered]) -> list[str]:
    lines = [line for line, row in rows if row["loss"] > LARGEST_LOSS]
    if not lines:
        return []
    return [
        f"{named(lines)}: a loss above {LARGEST_LOSS:g} nats a token is worse than guessing; these runs enter no fit"
    ]


def odd_losses(rows: Sequence[Numbered]) -> list[str]:
    """Name losses that lie far below or above a smooth surface through the other runs of their method."""
    groups: dict[tuple[str, ...], list[Numbered]] = {}
    for numbered in rows:
        kind = tuple(str(numbered[1].get(name)) for name in ("method", "gate", "label"))
        if numbered[1]["loss"] <= LARGEST_LOSS:
            groups.setdefault(kind, []).append(numbered)
    lines = sorted(far for group in groups.values() for far in far_from_surface(group))
    found = []
    for side, words in (("below", "below any floor that the others allow?"), ("above", "a run that went wrong?")):
        own = [line for line, which in lines if which == side]
        if own:
            found.append(f"{named(own)}: the loss lies far {side} a smooth surface through the others; {words}")
    return found


def far_from_surface(rows: Sequence[Numbered]) -> list[tuple[int, str]]:
    """Return (line, side) of losses far from a least-absolute surface in ln N and ln D. Sweeps are left alone."""
    import numpy as np

    if len(rows) < FEWEST or len({row.get("lr_peak") for _, row in rows}) > 1:
        return []
    n, d, y = (np.log([row[name] for _, row in rows]) for name in ("n_params", "n_tokens", "loss"))
    n, d = n - n.mean(), d - d.mean()
    columns = [np.ones_like(n), n, d] + ([n * n, n * d, d * d] if len(rows) >= 2 * FEWEST else [])
    design = np.stack(columns, axis=1)
    weight = np.ones_like(y)
    for _ in range(50):  # reweighted least squares, towards least absolute deviations
        solved = np.linalg.lstsq(design * np.sqrt(weight)[:, None], y * np.sqrt(weight), rcond=None)[0]
        weight = 1 / np.maximum(np.abs(y - design @ solved), 1e-6)
    residual = y - design @ solved
    spread = 1.4826 * float(np.median(np.abs(residual)))
    far = np.abs(residual) > max(FAR * spread, math.log1p(FAR_SHARE))
    return [(rows[int(i)][0], "below" if residual[i] < 0 else "above") for i in np.flatnonzero(far)]


def named(lines: Iterable[int]) -> str:
    """Name lines: `line 3`, `lines 3, 4 and 5`, or the first few and how many more."""
    shown = [str(line) for line in lines]
    if len(shown) == 1:
        return f"line {shown[0]}"
    if len(shown) > MOST_NAMED:
        return f"lines {', '.join(shown[:MOST_NAMED])} and {len(shown) - MOST_NAMED} more"
    return f"lines {', '.join(shown[:-1])} and {shown[-1]}"
