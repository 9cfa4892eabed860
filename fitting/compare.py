"""A method against its baseline: everything a paper would state, with what it must admit. Frames in, one record out."""

import math
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

import pandas as pd

from scalewright.fitting.cells import DifferingSetting, differing_settings
from scalewright.fitting.curve import budget_keys, scatter, size_keys
from scalewright.fitting.difference import LossDifference, loss_differences
from scalewright.fitting.errors import CurveError, FittingError
from scalewright.fitting.frame import PointRules, Points, check_points, unknown
from scalewright.fitting.hyper import at_edge, best_of_sweeps
from scalewright.fitting.joint.answer import JointComparison, joint_comparison
from scalewright.fitting.joint.noise import FEWEST_SIZES
from scalewright.fitting.joint.units import UNITS, Pooled, in_unit
from scalewright.fitting.multiplier import Multiplier, SharingTest, compute_multiplier
from scalewright.fitting.parameter_multiplier import parameter_multipliers
from scalewright.fitting.result import jsonable
from scalewright.fitting.speedup import DIRECTIONS, SpeedUp, speedups

FEW_SIZES = 4  # at three, intervals cover .90 where a method's runs of one size share an effect: docs/fitting.md
FEW = 3  # sizes, budgets or seeds below which a comparison is called thin
DIFFERS = 0.05  # p value under which sizes or budgets are said to differ


@dataclass(frozen=True)
class Comparison:
    """What separates a method from its baseline.

    `joint` is one model of all runs; from it come `pooled`, the speed-up in three units (scopes "pooled", "size ..",
    "budget ..", "new size"), and the intervals of `differences` of the final loss (also by cell). `speedups` are those
    of single cells, each from one curve, in both directions; `multipliers` (compute, data, parameters) come from laws;
    `sharing` says whether exponents were shared; `settings` is what else runs of one size and budget differ in.
    `sentence` is what a paper could print, `warnings` what it must admit.
    """

    method: str
    baseline: str
    level: float
    n: int
    differences: tuple[LossDifference, ...]
    speedups: tuple[SpeedUp, ...]
    pooled: tuple[Pooled, ...]
    multipliers: tuple[Multiplier, ...]
    sharing: SharingTest | None
    noise: float
    sentence: str
    warnings: tuple[str, ...]
    data_hash: str
    joint: JointComparison | None = field(default=None, repr=False, compare=False)
    settings: tuple[DifferingSetting, ...] = ()

    @property
    def difference(self) -> LossDifference:
        """The pooled difference of the final loss."""
        return self.differences[0]

    @property
    def is_below_noise(self) -> bool:
        """Whether the pooled difference is under twice the standard error that the scatter of runs would give it."""
        return below_noise(self.difference, self.noise)

    def speedup(self, unit: str = "tokens", scope: str = "pooled") -> Pooled | None:
        """Return one speed-up of the joint model, or None where it could not be measured."""
        return next((p for p in self.pooled if (p.unit, p.scope) == (unit, scope)), None)

    def frame(self) -> pd.DataFrame:
        """Return every headline number as rows: quantity, scope, value, low, high."""
        rows = [("loss difference, nats", d.scope, d.nats, d.low, d.high) for d in self.differences]
        rows += [(f"{p.unit}-to-loss", p.scope, p.ratio, p.low, p.high) for p in self.pooled]
        rows += [(f"{m.kind} multiplier", m.at, m.value, m.low, m.high) for m in self.multipliers]
        return pd.DataFrame(rows, columns=["quantity", "scope", "value", "low", "high"])

    def summary(self) -> str:
        """Return the sentence, the numbers and the warnings as text."""
        shown = [
            f"{q:34} {s:22} {v:9.4g}   {lo:.4g} to {hi:.4g}"
            for q, s, v, lo, hi in self.frame().itertuples(index=False)
            if not s.startswith("cell")
        ]
        return "\n".join([self.sentence, "", *shown, "", *(f"warning: {w}" for w in self.warnings)])

    def to_record(self) -> dict[str, Any]:
        """Return the comparison as JSON-able values."""
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "joint"}
        plain = {name: _plain(value) for name, value in own.items()}
        rests = {"differences": [asdict(d) | {"rests_on": d.rests_on} for d in self.differences]}
        joint = {"joint": None if self.joint is None else self.joint.to_record()}
        record: dict[str, Any] = jsonable(plain | rests | joint | {"is_below_noise": self.is_below_noise})
        return record


def _plain(value: Any) -> Any:
    """Return a record as a dictionary, a tuple of records as a list of them, anything else as it is."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def compare(
    points: Points | pd.DataFrame,
    method: str,
    baseline: str,
    *,
    rules: PointRules | None = None,
    curve: str = "fitted",
    level: float = 0.95,
) -> Comparison:
    """Compare a method with its baseline over the sizes and budgets they share.

    Where a cell holds several learning rates only the best of each method enters. What cannot be measured (a unit
    without throughput, a law that is not identified) is left out and named in `warnings`. Raises FittingError for
    unknown methods, or when the two share no size and budget.
    """
    checked = check_points(points, rules)
    for name in (method, baseline):
        if name not in checked.methods:
            raise FittingError(unknown("method", name, checked.methods))
    if method == baseline:
        raise FittingError(f"{method} cannot be compared with itself")
    pair = checked.where(checked.frame["label"].isin([method, baseline]))
    edges = at_edge(pair)
    pair = best_of_sweeps(pair)
    joint, no_joint = _joint(pair, method, baseline, level)
    differences = loss_differences(pair, method, baseline, level=level, joint=joint)
    cells, missing = _all_speedups(pair, method, baseline, curve, level)
    pooled, no_unit = _all_pooled(joint)
    multipliers, sharing, refused = _all_multipliers(pair, method, baseline, pooled, level)
    noise, df = scatter(pair.frame)
    settings = differing_settings(pair.frame, method, baseline)
    warnings = [*_settings_warnings(settings, method, baseline), *_design_warnings(pair, method, baseline)]
    warnings += [*_edge_warnings(edges), *_exclusion_warnings(checked)]
    warnings += dict.fromkeys(w for cell in cells for w in cell.warnings if " left out: " in w)
    warnings += [*_hardware_warnings(pair), *_noise_warnings(differences[0], noise, df)]
    warnings += [*no_joint, *_scale_warnings(joint), *dict.fromkeys([*missing, *no_unit]), *refused]
    sentence = _sentence(method, baseline, differences[0], pooled, pair, level)
    return Comparison(
        method, baseline, level, len(pair), differences, cells, pooled, multipliers, sharing, noise, sentence,
        tuple(warnings), pair.data_hash(), joint, settings,
    )  # fmt: skip


def _all_speedups(
    pair: Points, method: str, baseline: str, curve: str, level: float
) -> tuple[tuple[SpeedUp, ...], list[str]]:
    found: list[SpeedUp] = []
    missing: dict[str, list[tuple[str, str]]] = {}
    for unit in UNITS:
        for direction in DIRECTIONS:
            try:
                found += speedups(pair, method, baseline, direction=direction, unit=unit, curve=curve, level=level)
            except FittingError as error:
                missing.setdefault(str(error), []).append((unit, direction))
    return tuple(found), [f"{_missing_words(cases)} not measured: {why}" for why, cases in missing.items()]


def _missing_words(cases: list[tuple[str, str]]) -> str:
    """Name the units, and the direction where only one of the two is missing."""
    by_unit = {unit: [d for u, d in cases if u == unit] for unit, _ in cases}
    if len({tuple(found) for found in by_unit.values()}) > 1:
        return ", ".join(f"{unit}-to-loss ({direction})" for unit, direction in cases)
    directions = next(iter(by_unit.values()))
    ending = "" if len(directions) == len(DIRECTIONS) else f" ({directions[0]})"
    return ", ".join(f"{unit}-to-loss" for unit in by_unit) + ending


def _joint(pair: Points, method: str, baseline: str, level: float) -> tuple[JointComparison | None, list[str]]:
    try:
        return joint_comparison(pair, method, baseline, level=level), []
    except CurveError as error:
        return None, [f"no speed-up over all runs: {error}"]


def _all_pooled(joint: JointComparison | None) -> tuple[tuple[Pooled, ...], list[str]]:
    pooled: list[Pooled] = []
    missing: list[str] = []
    if joint is None:
        return (), []
    for unit in UNITS:
        try:
            pooled += in_unit(joint, unit)
        except FittingError as error:
            missing.append(f"{unit}-to-loss not measured: {error}")
    return tuple(pooled), missing


def _scale_warnings(joint: JointComparison | None) -> list[str]:
    """Say where the data reject one speed-up for all."""
    if joint is None:
        return []
    return _few_sizes(len(joint.runs.sizes)) + [
        f"the speed-up differs by {test.against} (F test p = {test.p_value:.2g}): read it by {test.against}"
        for test in joint.tests
        if test.p_value < DIFFERS
    ]


def _few_sizes(n_sizes: int) -> list[str]:
    """Say what few sizes do to the interval of a speed-up."""
    if n_sizes < FEWEST_SIZES:
        return [
            "fewer than three sizes: what a method's runs of one size may share, and a gain that depends on size, is"
            " hardly in the interval"
        ]
    told = "tell what a method's runs of one size share; where they share much, the interval may be too narrow"
    return [f"few sizes: {n_sizes} {told}"] * (n_sizes <= FEW_SIZES)


def _all_multipliers(
    pair: Points, method: str, baseline: str, pooled: tuple[Pooled, ...], level: float
) -> tuple[tuple[Multiplier, ...], SharingTest | None, list[str]]:
    found = [
        Multiplier("data", "fixed size", p.ratio, p.low, p.high, "one model of all runs: a shift along tokens")
        for p in pooled
        if (p.scope, p.unit) == ("pooled", "tokens")
    ]
    found += parameter_multipliers(pair, method, baseline, level=level)
    try:
        compute, sharing = compute_multiplier(pair, method, baseline, level=level)
    except FittingError as error:
        return tuple(found), None, [str(error)]
    return (*compute, *found), sharing, [_far_words(one) for one in compute if one.reason or one.is_extrapolated]


def _far_words(one: Multiplier) -> str:
    """Say why a compute multiplier has no value, or how far past the baseline's runs it rests."""
    if one.reason:
        return f"compute multiplier at {one.at}: {one.reason}"
    return (
        f"compute multiplier at {one.at}: an extrapolation, the baseline's law is read {one.past:.3g}x outside its"
        " runs; the interval does not hold what the law may miss there"
    )


def _design_warnings(pair: Points, method: str, baseline: str) -> list[str]:
    frame = pair.frame.assign(_size=size_keys(pair.frame), _budget=budget_keys(pair.frame))
    notes = []
    for what, column in (("size", "_size"), ("budget", "_budget")):
        shared = set(frame.loc[frame["label"] == method, column]) & set(frame.loc[frame["label"] == baseline, column])
        if len(shared) < FEW:
            notes.append(f"thin design: {len(shared)} shared {what}{'s' if len(shared) != 1 else ''}")
    seeds = int(frame["seed"].nunique()) if "seed" in frame else 1
    if seeds < FEW:
        notes.append(f"{max(seeds, 1)} seed{'s' if seeds > 1 else ''}: seed noise is poorly known")
    return notes


def _settings_warnings(settings: tuple[DifferingSetting, ...], method: str, baseline: str) -> list[str]:
    """Say what besides the methods differs between runs that are compared, or taken for seeds of each other."""
    between = [one.words for one in settings if one.within is None]
    both = f"{method} and {baseline} also differ in {', '.join(between)}: what separates them is of all these together"
    return [both] * bool(between) + [
        f"runs of {one.within} of one size and budget differ in {one.words} and are taken for seeds of each other:"
        " give each value a separate experiment"
        for one in settings
        if one.within is not None
    ]


def _edge_warnings(edges: list[str]) -> list[str]:
    return [f"learning rate at the edge of its sweep: {', '.join(edges)}"] if edges else []


def _exclusion_warnings(points: Points) -> list[str]:
    """What was left out, by reason; un-annealed finals never enter tokens-to-loss."""
    reasons = pd.Series([e.reason for e in points.excluded], dtype=object).value_counts()
    return [f"{n} run{'s' if n > 1 else ''} left out: {reason}" for reason, n in reasons.items()]


def _hardware_warnings(pair: Points) -> list[str]:
    notes = []
    for column in ("device", "threads"):
        if column in pair.frame and pair.frame[column].dropna().astype(str).nunique() > 1:
            notes.append(f"throughput was measured on different {column}: seconds do not compare")
    return notes


def below_noise(difference: LossDifference, noise: float) -> bool:
    """Whether a difference of log loss is under two standard errors, were runs to scatter by `noise` independently."""
    return abs(math.log(difference.ratio)) < 2 * noise * math.sqrt(4 / difference.n_runs)  # n/2 runs on each side


def _noise_warnings(difference: LossDifference, noise: float, df: int) -> list[str]:
    if not df:
        return ["the noise of single runs is not known from these runs"]
    if below_noise(difference, noise):
        gap = abs(math.log(difference.ratio))
        return [f"the difference ({100 * gap:.2g}% of the loss) is below the noise of runs ({100 * noise:.2g}% each)"]
    return []


def _sentence(
    method: str, baseline: str, difference: LossDifference, pooled: tuple[Pooled, ...], pair: Points, level: float
) -> str:
    """The sentence a paper could print: loss, then tokens and seconds with their intervals and what they rest on."""
    frame = pair.frame
    n_seeds = int(frame["seed"].nunique()) if "seed" in frame else 1
    rests = difference.rests_on
    if difference.basis in ("cells", "model"):
        rests += f", {max(n_seeds, 1)} seed{'s' if n_seeds > 1 else ''}"
    if not difference.resolved:
        return (
            f"No difference between {method} and {baseline} is resolved: final loss {difference.nats:+.3f} nats"
            f" ({100 * level:g}% interval {difference.low:+.3f} to {difference.high:+.3f}; {rests})."
        )
    word = "lower" if difference.nats < 0 else "higher"
    text = (
        f"{method} ends {abs(difference.nats):.3f} nats {word} than {baseline}"
        f" ({100 * level:g}% interval {difference.low:+.3f} to {difference.high:+.3f}; {rests})"
    )
    parts = [_speed_words(p) for p in pooled if p.scope == "pooled"]
    return f"{text}; {baseline} needs {', '.join(parts)} for {method}'s loss." if parts else f"{text}."


def _speed_words(p: Pooled) -> str:
    return f"{p.ratio:.3g}x the {p.unit} ({p.low:.3g} to {p.high:.3g})"
