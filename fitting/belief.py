"""What runs tell of a law on a pool of candidates, as a mixture of Gaussians: one for each basin that fits end in.

Linear in each basin, the mixture is a factor: log losses of the pool F (n_pool, n_factor), answers G (n_answers,
n_factor), with unit variance along every factor, which `advise` buys from. After Li et al. 2026, arXiv:2604.22753; here
the law also errs, smoothly (random Fourier features: Rahimi and Recht 2007). Knows laws and numbers, no experiments.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from scalewright.fitting.advise import Prospect
from scalewright.fitting.errors import FittingError
from scalewright.fitting.frame import unknown
from scalewright.fitting.laws import LAWS
from scalewright.fitting.laws.interface import Law
from scalewright.fitting.laws.rate_batch import RATE_BATCH

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Answer = Callable[[Array], tuple[Array, Array]]  # theta -> answers (m,), Jacobian (m, n_theta)

ADVISABLE: dict[str, Law] = {**{k: v for k, v in LAWS.items() if not v.per_method}, RATE_BATCH.name: RATE_BATCH}
ASSUMED_NOISE, NOISE_RUNS = 0.01, 4.0  # scatter of log loss before runs tell it, and how many runs that is worth
TAIL = 4.0  # degrees of freedom of the scatter: a run that went wrong does not steer the fit
N_STARTS, N_STEPS, N_BASINS = 4, 60, 3
FIRST_NOISE, LAST_DAMPING = 0.05, 1e8
LAW_ERRORS = (0.005, 0.04)  # typical sizes of a law's error in log loss; the runs tell which
REACH, N_WAVES = 1.5, 96  # over how many standard deviations of an axis it varies
SAME_BASIN, LEAST_WEIGHT = 0.1, 1e-3  # in prior standard deviations
SMALL_GAIN = 1e-5  # of the log posterior, at which a fit ends
EXPONENTS = ("alpha", "beta")
ASKED = "chinchilla"  # the law behind a question about a loss or an exponent
PRIOR: dict[str, tuple[float, float]] = {  # of coordinates that a law does not describe otherwise, on centred axes
    "alpha": (0.35, 0.2),
    "beta": (0.35, 0.2),
    "R_D": (np.log(15.0), 1.0),
    "R_N": (np.log(5.0), 1.0),
    "c": (0.0, 1.5),
    "p": (0.0, 0.5),
    "q": (0.0, 0.5),
    "k": (0.0, 0.5),
    "c_b": (0.0, 1.5),
    "s": (0.0, 0.5),
    "h_r": (np.log(0.01), 1.0),
    "h_b": (np.log(0.01), 1.0),
}
COEFFICIENTS = {"E": (np.log(0.6), 0.4), "A": (np.log(0.15), 1.2), "B": (np.log(0.15), 1.2)}  # shares of a loss


@dataclass(frozen=True)
class Pool:
    """Candidate runs: log of each axis (centred on the pool), the method of each, and its cost in any one unit."""

    axes: dict[str, Array]
    methods: NDArray[np.str_]
    cost: Array

    def at(self, rows: Rows) -> "Pool":
        """Return the pool of these rows alone."""
        return Pool({k: v[rows] for k, v in self.axes.items()}, self.methods[rows], self.cost[rows])


@dataclass(frozen=True)
class Model:
    """A law on a pool: the names of its coordinates and what is believed of them before any run."""

    law: Law
    names: tuple[str, ...]
    mean: Array
    sd: Array
    lower: Array
    upper: Array
    waves: Array  # (n_axes, n_waves): a smooth error of the law, as random waves over its axes
    phases: Array

    def predict(self, theta: Array, pool: Pool) -> tuple[Array, Array]:
        """Return log L (n_pool,) and its Jacobian (n_pool, n_theta): the law and its smooth error."""
        n = len(self.names)
        with np.errstate(all="ignore"):  # far from the runs a law may overflow; such a step is refused
            told, jacobian = self.law.log_loss_at(self.names, theta[:n], pool.axes, pool.methods)
        x = np.stack([pool.axes[axis] for axis in self.law.axes], axis=1)
        error = np.sqrt(2 / self.waves.shape[1]) * np.cos(x @ self.waves + self.phases)
        return told + error @ theta[n:], np.concatenate([jacobian, error], axis=1)


@dataclass(frozen=True)
class Basin:
    """One optimum: theta, a root of its covariance (n_theta, n_theta), its weight in the mixture."""

    theta: Array
    root: Array
    weight: float


@dataclass(frozen=True)
class Belief:
    """What the runs so far tell: basins, the best first, and the scatter of log loss between runs alike."""

    basins: tuple[Basin, ...]
    noise: float

    @property
    def theta(self) -> Array:
        """The coordinates (n_theta,) of the best basin."""
        return self.basins[0].theta


def centres(axes: Mapping[str, Array]) -> dict[str, float]:
    """Return the mean log of each axis; tokens and unique tokens share theirs, as the laws take their ratio."""
    found = {name: float(values.mean()) for name, values in axes.items()}
    if "unique_tokens" in found:
        found["unique_tokens"] = found["n_tokens"]
    return found


def model_of(law: Law, pool: Pool, seed: int = 0) -> Model:
    """Lay a law out on a pool; `seed` draws the waves of which the law's own error is made."""
    problem = law.lay_out(pool.axes, np.zeros(len(pool.cost)), pool.methods)
    base = [name.split("[")[0] for name in problem.names]
    mean, sd = np.zeros(len(base)), np.ones(len(base))
    for j, name in enumerate(base):
        default = (
            0.5 * (problem.box.lower[j] + problem.box.upper[j]),
            0.2 * np.ptp([problem.box.lower[j], problem.box.upper[j]]),
        )
        mean[j], sd[j] = {**COEFFICIENTS, **PRIOR}.get(name, default)
    lower = np.array([1e-3 if name in EXPONENTS else -np.inf for name in base])
    upper = np.array([3.0 if name in EXPONENTS else np.inf for name in base])
    rng = np.random.default_rng(seed)
    scale = np.array([max(float(pool.axes[axis].std()), 1e-9) for axis in law.axes])
    waves = rng.standard_normal((len(law.axes), N_WAVES)) / (REACH * scale[:, None])
    flat, edge = np.zeros(N_WAVES), np.full(N_WAVES, np.inf)
    phases = rng.uniform(0, 2 * np.pi, N_WAVES)
    mean, sd, lower, upper = (
        np.concatenate(pair) for pair in ((mean, flat), (sd, flat + 1), (lower, -edge), (upper, edge))
    )
    return Model(law, problem.names, mean, sd, lower, upper, waves, phases)


def scaled_to(model: Model, log_loss: Array) -> Model:
    """Set the level of the coefficients by the losses seen."""
    if not len(log_loss):
        return model
    base = [name.split("[")[0] for name in model.names]
    return replace(
        model,
        mean=model.mean + np.median(log_loss) * np.array([name in COEFFICIENTS for name in base] + [False] * N_WAVES),
    )


def believe(model: Model, pool: Pool, log_loss: Array, rng: np.random.Generator, start: Belief | None = None) -> Belief:
    """Fit the law to runs from several starts, each a mode of the posterior under scatter with heavy tails."""
    model = scaled_to(model, log_loss)
    n = len(model.names)
    draws = model.mean + 0.8 * model.sd * rng.standard_normal((N_STARTS, len(model.mean)))
    draws[:, n:] = 0
    fresh = [model.mean, *draws[: N_STARTS // 2 if start else N_STARTS]]
    starts = [*(basin.theta for basin in start.basins), *fresh] if start else fresh
    ends = []
    for size in LAW_ERRORS:
        sized = replace(model, sd=np.concatenate([model.sd[:n], np.full(len(model.mean) - n, size)]))
        for theta in starts if len(log_loss) else starts[:1]:
            ends.append(_mode(sized, pool, log_loss, np.clip(theta, model.lower, model.upper)))
    ends.sort(key=lambda end: -end.evidence)
    kept: list[_End] = []
    for end in ends:
        if len(kept) < N_BASINS and all(_apart(model, end, other) for other in kept):
            kept.append(end)
    weights = np.exp([end.evidence - kept[0].evidence for end in kept])
    weights = weights / weights.sum()
    basins = [Basin(e.theta, e.root, float(w)) for e, w in zip(kept, weights, strict=True) if w > LEAST_WEIGHT]
    return Belief(tuple(basins), kept[0].noise)


@dataclass(frozen=True)
class _End:
    """Where a fit ended, with the log of the evidence about it (Laplace's approximation, up to a constant)."""

    theta: Array
    root: Array
    noise: float
    evidence: float
    error: float


def _apart(model: Model, end: _End, other: _End) -> bool:
    n = len(model.names)
    return end.error != other.error or bool((np.abs(end.theta - other.theta) / model.sd)[:n].max() > SAME_BASIN)


@dataclass(frozen=True)
class _Place:
    """A point of a fit: theta, the noise believed there, log losses told, their Jacobian, -log posterior."""

    theta: Array
    noise: float
    left: Array
    jacobian: Array
    value: float

    @property
    def weight(self) -> Array:
        return np.asarray((TAIL + 1) / (TAIL + (self.left / self.noise) ** 2))

    @property
    def is_sound(self) -> bool:
        return bool(np.isfinite(self.value) and np.isfinite(self.jacobian).all())


def _place(model: Model, pool: Pool, log_loss: Array, theta: Array, noise: float) -> _Place:
    told, jacobian = model.predict(theta, pool)
    left = log_loss - told
    return _Place(theta, noise, left, jacobian, _value(model, theta, left, noise))


def _curvature(model: Model, at: _Place) -> Array:
    return np.asarray((at.jacobian.T * at.weight) @ at.jacobian / at.noise**2 + np.diag(1 / model.sd**2))


def _mode(model: Model, pool: Pool, log_loss: Array, theta: Array) -> _End:
    """Return the mode of the posterior by damped Gauss-Newton with weights for heavy tails."""
    n = len(log_loss)
    at = _place(model, pool, log_loss, theta, FIRST_NOISE if n else ASSUMED_NOISE)
    if not at.is_sound:
        at = _place(model, pool, log_loss, model.mean, at.noise)
    damping = 1e-2
    for count in range(N_STEPS if n else 0):
        if count % 3 == 2:
            squares = NOISE_RUNS * ASSUMED_NOISE**2 + float((at.weight * at.left**2).sum())
            noise = float(np.sqrt(squares / (NOISE_RUNS + n)))
            at = replace(at, noise=noise, value=_value(model, at.theta, at.left, noise))
        pull = at.jacobian.T @ (at.weight * at.left) / at.noise**2 - (at.theta - model.mean) / model.sd**2
        bend = _curvature(model, at)
        move = np.linalg.solve(bend + damping * np.diag(np.diag(bend)), pull)
        there = _place(model, pool, log_loss, np.clip(at.theta + move, model.lower, model.upper), at.noise)
        better = there.is_sound and there.value <= at.value
        done = better and at.value - there.value < SMALL_GAIN and count > 6
        at, damping = (there, damping * 0.2) if better else (at, max(damping, 1e-4) * 8)
        if done or damping > LAST_DAMPING:
            break
    values, vectors = np.linalg.eigh(_curvature(model, at) * np.outer(model.sd, model.sd))
    values = np.maximum(values, 1e-12)
    evidence = -at.value - 0.5 * float(np.log(values).sum())  # the prior's own volume is the unit of `values`
    return _End(at.theta, model.sd[:, None] * vectors / np.sqrt(values), at.noise, evidence, float(model.sd[-1]))


def _value(model: Model, theta: Array, left: Array, noise: float) -> float:
    tails = 0.5 * (TAIL + 1) * np.log1p((left / noise) ** 2 / TAIL).sum() + (len(left) + NOISE_RUNS) * np.log(noise)
    held = 0.5 * NOISE_RUNS * (ASSUMED_NOISE / noise) ** 2
    value = float(tails + held + 0.5 * (((theta - model.mean) / model.sd) ** 2).sum())
    return value if np.isfinite(value) else np.inf


def factor(belief: Belief, answer: Answer) -> Array:
    """Return the factor of answers (m, n_factor): within each basin and between them."""
    told = [answer(basin.theta) for basin in belief.basins]
    weights = np.array([basin.weight for basin in belief.basins])
    mean = np.einsum("k,km->m", weights, np.array([value for value, _ in told]))
    within = [np.sqrt(b.weight) * jac @ b.root for b, (_, jac) in zip(belief.basins, told, strict=True)]
    between = [np.sqrt(w) * (value - mean)[:, None] for w, (value, _) in zip(weights, told, strict=True)]
    return np.concatenate([*within, *(between if len(between) > 1 else [])], axis=1)


def loss_prospect(
    table: pd.DataFrame, n_params: float, n_tokens: float, level: float = 0.95, seed: int = 0
) -> Prospect:
    """Return what is known of the log loss at a size and budget, and what each run of `table` would tell of it.

    table: n_params, n_tokens and loss_nats (NaN of runs to come) of one method; the law is ASKED.
    """
    target = {"n_params": n_params, "n_tokens": n_tokens}

    def answer(model: Model, middle: Mapping[str, float]) -> Answer:
        axes = {axis: np.array([np.log(target[axis]) - middle[axis]]) for axis in model.law.axes}
        there = Pool(axes, np.array(["all"]), np.ones(1))
        return lambda theta: model.predict(theta, there)

    return _prospect(table, answer, level, seed)


def exponent_prospect(table: pd.DataFrame, name: str, level: float = 0.95, seed: int = 0) -> Prospect:
    """Return what is known of an exponent of ASKED, and what each run of `table` (as above) would tell of it.

    Raises FittingError for a name that is none of EXPONENTS.
    """
    if name not in EXPONENTS:
        raise FittingError(unknown("exponent", name, EXPONENTS))

    def answer(model: Model, middle: Mapping[str, float]) -> Answer:
        at = model.names.index(name)
        return lambda theta: (theta[[at]], np.eye(len(theta))[[at]])

    return _prospect(table, answer, level, seed)


def _prospect(
    table: pd.DataFrame, answer: Callable[[Model, Mapping[str, float]], Answer], level: float, seed: int
) -> Prospect:
    law = ADVISABLE[ASKED]
    logs = {axis: np.log(table[axis].to_numpy(dtype=np.float64)) for axis in law.axes}
    middle = centres(logs)
    n = len(table)
    pool = Pool({axis: logs[axis] - middle[axis] for axis in logs}, np.full(n, "all"), np.ones(n))
    model = model_of(law, pool, seed)
    log_loss = np.log(table["loss_nats"].to_numpy(dtype=np.float64))
    known = np.flatnonzero(np.isfinite(log_loss))
    belief = believe(model, pool.at(known), log_loss[known], np.random.default_rng(seed))
    asked = answer(model, middle)
    value = float(sum(basin.weight * asked(basin.theta)[0][0] for basin in belief.basins))
    told = factor(belief, asked)
    normal = float(stats.norm.ppf(0.5 + level / 2))
    rows = factor(belief, lambda theta: model.predict(theta, pool))
    return Prospect(rows, told, belief.noise, value, normal * float(np.linalg.norm(told)), normal)
