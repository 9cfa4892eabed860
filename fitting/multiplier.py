"""Equal-loss multipliers from fitted laws: how much more compute, data or parameters the baseline needs.

Shared exponents (E, alpha, beta common): ln CM = (a_0 - a_m)/alpha + (b_0 - b_m)/beta, the same at every C. Whether
sharing is allowed is tested. Otherwise CM(C) is found by inversion, and is undefined where L*_m(C) <= E_0.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from scalewright.fitting.errors import FittingError
from scalewright.fitting.fit import fit
from scalewright.fitting.frame import FLOPS_PER_PARAMETER_TOKEN, Points
from scalewright.fitting.frontier import Theta, frontier, gamma, log_best_loss, log_k, quantity
from scalewright.fitting.laws import LAWS
from scalewright.fitting.laws.additive import AdditiveLaw
from scalewright.fitting.optimum import pareto
from scalewright.fitting.result import FitResult
from scalewright.fitting.uncertainty import t_quantile
from scalewright.fitting.words import counted

Array = NDArray[np.float64]

SLACK = 0.02  # relative; answers this little outside the baseline's runs are not called extrapolated
REJECT = 0.05  # p-value of the F test under which exponents are not shared
PAIRS = (("chinchilla-shared", "all runs"), ("power-shared", "runs on the lower envelope of loss against compute"))


@dataclass(frozen=True)
class SharingTest:
    """Whether methods may share exponents: F test, AICc, error on the largest held-out computes (RMS of log loss)."""

    law: str
    f_statistic: float
    p_value: float
    aicc_shared: float
    aicc_separate: float
    held_out_shared: float | None
    held_out_separate: float | None
    shared: bool


@dataclass(frozen=True)
class Multiplier:
    """How many times the baseline needs of `kind` ("compute", "data", "parameters") for the method's loss.

    `at` names where ("any compute", a FLOP number, a budget), `basis` the law and the runs behind it. `past`: how many
    times outside the baseline's runs the answer lies, 1 or less inside, None where that has no meaning. `reason`: why
    there is no value, or no interval; these are NaN then.
    """

    kind: str
    at: str
    value: float
    low: float
    high: float
    basis: str
    past: float | None = None
    reason: str = ""

    @property
    def is_extrapolated(self) -> bool:
        """Whether the baseline had to be evaluated outside its runs, by more than rounding."""
        return self.past is not None and self.past > 1 + SLACK

    def unresolved(self, reason: str) -> "Multiplier":
        """Return it without a number, for a reason."""
        return replace(self, value=math.nan, low=math.nan, high=math.nan, reason=reason)


def compute_multiplier(
    points: Points, method: str, baseline: str, *, level: float = 0.95
) -> tuple[tuple[Multiplier, ...], SharingTest]:
    """Return the equal-loss compute multiplier and the test that decided its form.

    Tries the Chinchilla law on all runs, and where these do not identify it a power law in compute on the lower
    envelope.
    Raises FittingError when neither can be fitted.
    """
    pair = points.where(points.frame["label"].isin([method, baseline]))
    reasons = []
    for name, which in PAIRS:
        runs = pair if name == "chinchilla-shared" else pareto(pair)
        try:
            test = sharing_test(runs, name)
            found = _multipliers(runs, name, (method, baseline), test, level)
        except FittingError as error:
            reasons.append(f"{name}: {error}")
            continue
        if found:
            return tuple(replace(m, basis=f"{m.basis}, {which}") for m in found), test
        reasons.append(f"{name}: not identified by these runs")
    raise FittingError(f"no compute multiplier of {method} over {baseline} ({'; '.join(reasons)})")


def sharing_test(points: Points, law: str) -> SharingTest:
    """Compare the law with shared exponents against one fit a method, by least squares on log loss."""
    shared = fit(points, law, "log-l2", profile="never")
    apart = separate(law)
    own = [fit(points.of(m), apart, "log-l2", profile="never") for m in points.methods]
    n, p0 = len(points), len(shared.estimate.names)
    p1 = sum(len(r.estimate.names) for r in own)
    s0, s1 = 2 * shared.objective_value, 2 * sum(r.objective_value for r in own)
    if n - p1 < 1:
        raise FittingError(f"too few for separate fits: {counted(n, 'run')} for {p1} parameters")
    f = max((s0 - s1) / (p1 - p0), 0.0) / max(s1 / (n - p1), 1e-300)
    p = float(stats.f.sf(f, p1 - p0, n - p1))
    held = _held_out(points, law, apart)
    return SharingTest(law, f, p, _aicc(s0, n, p0), _aicc(s1, n, p1), *held, shared=p >= REJECT)


def separate(law: str) -> AdditiveLaw:
    """The law of one method that a shared law generalises."""
    one = LAWS[law]
    assert isinstance(one, AdditiveLaw), law
    return replace(one, name=law.removesuffix("-shared"), per_method=())


def _aicc(squares: float, n: int, n_parameters: int) -> float:
    k = n_parameters + 1  # the scale counts too
    if n - k - 1 <= 0 or squares <= 0:
        return math.inf
    return n * math.log(squares / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1)


def _held_out(points: Points, law: str, apart: AdditiveLaw) -> tuple[float | None, float | None]:
    """RMS log error of both fits on each method's largest compute, fitted without it; None where too few are left."""
    top = points.frame.groupby("label")["flops"].transform("max")
    test, train = points.frame[points.frame["flops"] >= 0.999 * top], points.where(points.frame["flops"] < 0.999 * top)
    try:
        shared = fit(train, law, "log-l2", profile="never")
        own = {m: fit(train.of(m), apart, "log-l2", profile="never") for m in points.methods}
    except FittingError:
        return None, None
    errors: tuple[list[float], list[float]] = ([], [])
    for label, rows in test.groupby("label"):
        for k, result in enumerate((shared, own[str(label)])):
            told = result.predict(rows["n_params"], rows["n_tokens"], flops=rows["flops"], method=str(label))
            errors[k].extend(np.log(told.value / rows["loss_nats"].to_numpy(dtype=np.float64)))
    return _rms(errors[0]), _rms(errors[1])


def _rms(values: list[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _multipliers(
    runs: Points, law: str, names: tuple[str, str], test: SharingTest, level: float
) -> tuple[Multiplier, ...]:
    """Multipliers of one law; empty where its exponents are not identified."""
    if test.shared:
        result = fit(runs, law, level=level, profile="never")
        if not _usable(result):
            return ()
        found = _shared(result, *names)
        cheapest, dearest = (runs.frame.loc[runs.frame["label"] == name, "flops"] for name in names)
        return (replace(found, past=found.value * float(cheapest.min() / dearest.max())),)
    own = {m: fit(runs.of(m), separate(law), level=level, profile="never") for m in names}
    if not all(_usable(r) for r in own.values()):
        return ()
    compute = np.geomspace(runs.frame["flops"].min(), runs.frame["flops"].max(), 3)
    return tuple(_inverted(own[names[0]], own[names[1]], float(c)) for c in compute)


def _usable(result: FitResult) -> bool:
    """Whether the exponents are identified and nothing is at a bound (loose coefficients do no harm: ratios matter)."""
    exponents = [p for name, p in result.params.items() if name in ("alpha", "beta")]
    return all(p.identified for p in exponents) and not result.certificate.at_bound


def _shared(result: FitResult, method: str, baseline: str) -> Multiplier:
    """ln CM = sum over terms of (log coefficient of baseline - of method) / exponent."""
    index = {name: j for j, name in enumerate(result.estimate.names)}
    theta, centre = result.estimate.theta, 0.0
    gradient = np.zeros(len(theta))
    for coefficient, exponent in (("A", "alpha"), ("B", "beta")):
        if exponent not in index:
            continue
        first, second = index[f"{coefficient}[{baseline}]"], index[f"{coefficient}[{method}]"]
        gap, power = theta[first] - theta[second], theta[index[exponent]]
        centre += gap / power
        gradient[first] += 1 / power
        gradient[second] -= 1 / power
        gradient[index[exponent]] -= gap / power**2
    se = math.sqrt(max(float(gradient @ result.estimate.covariance @ gradient), 0.0))
    half = t_quantile(result.level, result.estimate.noise.df) * se
    value, low, high = (math.exp(float(centre) + shift) for shift in (0.0, -half, half))
    return Multiplier("compute", "any compute", value, low, high, f"{result.law.name}, exponents shared")


def _inverted(method: FitResult, baseline: FitResult, flops: float) -> Multiplier:
    """The compute at which the baseline's frontier reaches the method's, over `flops`."""
    basis, at = f"{method.law.name}, exponents of each method", f"{flops:.3g} FLOPs"
    if "beta" in method.params:
        log_loss = float(np.log(frontier(method, flops).loss_nats.value[0]))
        log_c = np.log(np.array([flops / FLOPS_PER_PARAMETER_TOKEN]))
        _, spread = quantity(method, lambda t: log_best_loss(t, log_c))
        reach, slope, own = _invert_chinchilla(baseline, log_loss)
    else:
        told = method.predict(flops=flops)
        log_loss = float(np.log(told.value))
        t = t_quantile(method.level, method.estimate.noise.df)
        spread = np.array([(math.log(float(told.high)) - log_loss) / t])
        reach, slope, own = _invert_power(baseline, log_loss)
    if not math.isfinite(reach):
        below = "undefined: the method's loss is below the baseline's fitted floor"
        return Multiplier("compute", at, math.nan, math.nan, math.nan, basis, reason=below)
    se = math.hypot(float(spread[0]) / slope, own)
    half = t_quantile(method.level, min(method.estimate.noise.df, baseline.estimate.noise.df)) * se
    value, low, high = (math.exp(reach - math.log(flops) + shift) for shift in (0.0, -half, half))
    past = math.exp(reach) / baseline.range["flops"][1]
    return Multiplier("compute", at, value, low, high, basis, past)


def _invert_chinchilla(baseline: FitResult, log_loss: float) -> tuple[float, float, float]:
    """log C at which the frontier reaches a loss, |d log L / d log C| there, and the standard error of log C."""

    def log_c(t: Theta) -> Any:
        above_floor = np.log(np.exp(log_loss) - np.exp(t["E"]))
        return (log_k(t) - above_floor) / gamma(t) + math.log(FLOPS_PER_PARAMETER_TOKEN)

    theta = dict(zip(baseline.estimate.names, baseline.estimate.theta, strict=True))
    if math.exp(log_loss) <= math.exp(theta["E"]):
        return math.inf, math.nan, math.nan
    value, se = quantity(baseline, log_c)
    slope = float(gamma(theta)) * (1 - math.exp(float(theta["E"]) - log_loss))
    return float(value[0]), slope, float(se[0])


def _invert_power(baseline: FitResult, log_loss: float) -> tuple[float, float, float]:
    """The same for L = A C^-alpha."""
    index = {name: j for j, name in enumerate(baseline.estimate.names)}
    a, alpha = (float(baseline.estimate.theta[index[name]]) for name in ("A", "alpha"))
    gradient = np.zeros(len(index))
    gradient[index["A"]], gradient[index["alpha"]] = 1 / alpha, -(a - log_loss) / alpha**2
    se = math.sqrt(max(float(gradient @ baseline.estimate.covariance @ gradient), 0.0))
    return (a - log_loss) / alpha, alpha, se
