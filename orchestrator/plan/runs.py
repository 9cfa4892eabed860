"""Points -> PlannedRuns: identity, settings, planned numbers and labels of every run of an experiment. No torch."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil
from typing import Any, Protocol

from scalewright.models.count import DEFAULT_FLOP_CONVENTION, count_parameters, flops_per_token, n_params
from scalewright.models.errors import ModelError
from scalewright.models.spec import LOGITS_AT_ONCE, ModelSpec
from scalewright.orchestrator.config.check import method_path
from scalewright.orchestrator.config.experiment import Experiment, Method
from scalewright.orchestrator.config.models import PLAIN_METHOD, model_spec
from scalewright.orchestrator.config.rates import (
    DEFAULT_RULE,
    LawLookup,
    RatePlace,
    describe_rule,
    no_laws,
    resolve_rate,
)
from scalewright.orchestrator.config.values import MAX_COUNT, Budget
from scalewright.orchestrator.config.yaml_text import KeyPath
from scalewright.orchestrator.plan.check import check_compute, check_run
from scalewright.orchestrator.plan.expand import Point, expand
from scalewright.orchestrator.plan.training import training_options, training_spec
from scalewright.orchestrator.runs.spec import RunSpec
from scalewright.orchestrator.runs.training_spec import Settings

MODEL_OVERRIDES = ("options", "gate_options", "init_options")
OptionOverrides = tuple[tuple[str, Any], ...]
MIN_STEPS = 1
GRID_RATE = "grid"  # the rule of a run whose rate is a value of the axis `lr`
PROCESS_BYTES = 600 * 2**20  # a Python process with torch and lightning loaded


class DataSplit(Protocol):
    """What planning reads of one side of the split."""

    @property
    def n_tokens(self) -> int:
        """Tokens of the split, ends of documents with them."""

    def n_windows(self, context: int) -> int:
        """Count the whole windows of `context` tokens and the next one."""


class DataManifest(Protocol):
    """What planning reads of a data manifest."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""

    @property
    def train(self) -> DataSplit:
        """What is trained on."""

    @property
    def validation(self) -> DataSplit:
        """What is never trained on."""

    def identity(self) -> dict[str, Any]:
        """Return what of the data determines a run's result."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of an experiment. Two points with the same identity are one run; `n_points` counts them.

    method: its label in the YAML; label: that with the overrides of its point. starts_at: tokens that another run of
    its trunk trains for it.
    """

    run_id: str
    spec: RunSpec
    settings: dict[str, Any]
    planned: dict[str, Any]
    label: str
    method: str
    size: str
    budget: str
    group: str
    holdout: bool
    profile: str
    n_points: int = 1
    starts_at: int = 0

    @property
    def n_tokens(self) -> int:
        """Tokens that the run itself trains on."""
        return int(self.spec.training["n_tokens"]) - self.starts_at

    @property
    def share(self) -> float:
        """The part of the run that it trains itself."""
        return self.n_tokens / int(self.spec.training["n_tokens"])

    @property
    def identity(self) -> dict[str, Any]:
        """What the run's id is the hash of."""
        return self.spec.to_dict()


def plan_runs(experiment: Experiment, manifest: DataManifest, *, laws: LawLookup = no_laws) -> list[PlannedRun]:
    """Resolve every point of the grid into a run, cheapest first; asks no database and writes nothing.

    Raises UserError with file, line and key path.
    """
    planner = Planner(experiment, manifest, laws)
    runs: dict[str, PlannedRun] = {}
    for point in expand(experiment, planner.facts):
        run = planner.plan_point(point)
        earlier = runs.get(run.run_id)
        runs[run.run_id] = run if earlier is None else _merge(earlier, run)
    return sorted(runs.values(), key=lambda run: (run.planned["flops_total"], run.label, run.spec.training["seed"]))


def _merge(earlier: PlannedRun, later: PlannedRun) -> PlannedRun:
    return replace(earlier, n_points=earlier.n_points + 1, holdout=earlier.holdout or later.holdout)


def tokens_of(budget: Budget, plain: Mapping[str, Any], batch_tokens: int) -> int:
    """Return the budget in whole steps, rounded up. `20x` and FLOPs go by the counts of the plain shape, so that every
    method of a size trains on the same tokens."""
    wanted = budget.amount
    if budget.unit == "tokens per parameter":
        wanted *= plain["n_params_non_embedding"]
    if budget.unit == "FLOPs":
        wanted /= plain["flops_per_token"]
    if wanted < MIN_STEPS * batch_tokens:
        raise ValueError(
            f"{budget.text} is {wanted:,.0f} tokens, less than one step of {batch_tokens:,}"
            + (
                "; was a comma meant as the decimal point?"
                if budget.unit == "tokens" and wanted < batch_tokens / 2
                else ""
            )
        )
    return batch_tokens * ceil(wanted / batch_tokens)


def bytes_per_number(precision: str) -> int:
    """Return the bytes of a weight or a moment."""
    return 2 if precision == "bf16-pure" else 4


def memory_bytes(spec: ModelSpec, n_params_total: int, batch_sequences: int, precision: str) -> int:
    """Estimate the peak memory of a job in bytes: the process, weights with gradients and two moments, activations.

    Kept for the backward, per token and layer: about 14 vectors of the width and 4 of the MLP's; logits three times, of
    many a part.
    """
    n_tokens = batch_sequences * spec.context
    activations = n_tokens * spec.depth * (14 * spec.width + 4 * spec.shape.mlp_width)
    logits = 3 * min(n_tokens * spec.vocab_size, LOGITS_AT_ONCE)
    kept = (activations + logits) * (2 if precision.startswith("bf16") else 4)
    return PROCESS_BYTES + 4 * bytes_per_number(precision) * n_params_total + kept


class Planner:
    """Resolves points, remembering the parts that many points share."""

    def __init__(self, experiment: Experiment, manifest: DataManifest, laws: LawLookup) -> None:
        self.experiment = experiment
        self.manifest = manifest
        self.laws = laws
        self.methods = {method.name: method for method in experiment.methods}
        self.data = manifest.identity()
        self.model = lru_cache(maxsize=None)(self.build_model)
        self.counts = lru_cache(maxsize=None)(self._count_model)
        self.model_record = lru_cache(maxsize=None)(lambda *key: self.model(*key).to_dict())
        self.planned = lru_cache(maxsize=None)(self._plan_numbers)
        self.settings = lru_cache(maxsize=None)(partial(run_settings, experiment))
        self.n_params_of = {
            name: self.counts((name, None, experiment.context[0], ()))["n_params_non_embedding"]
            for name in experiment.sizes
        }

    def build_model(self, size: str, label: str | None, context: int, overrides: OptionOverrides) -> ModelSpec:
        """Build the model of a label, or the plain shape for None."""
        method = Method(method=PLAIN_METHOD) if label is None else self.methods[label]
        options: dict[str, dict[str, Any]] = {part: {} for part in MODEL_OVERRIDES}
        for key, value in overrides:
            part, _, name = key.partition(".")
            options[part][name] = value
        shape = self.experiment.sizes[size]
        try:
            return model_spec(shape, method, context=context, vocab_size=self.manifest.vocab_size, options=options)
        except ModelError as error:
            raise self.experiment.source.error(("grid",), f"{label} at size {size}: {error}") from None

    def _count_model(self, spec_key: tuple[Any, ...]) -> dict[str, Any]:
        spec = self.model(*spec_key)
        roles = count_parameters(spec)
        return {
            "n_params_total": n_params(spec, "total"),
            "n_params_non_embedding": n_params(spec, "non-embedding"),
            "n_params_embedding": roles.get("embedding", 0),
            "n_params_head": roles.get("head", 0),
            "flops_per_token": float(flops_per_token(spec, DEFAULT_FLOP_CONVENTION)),
            "flop_convention": DEFAULT_FLOP_CONVENTION,
        }

    def facts(self, point: Point, names: Collection[str]) -> dict[str, Any]:
        """Return what conditions may ask of a point beside its axes, of the numbers named."""
        size = self.experiment.sizes[point.size]
        found: dict[str, Any] = {name: getattr(size, name) for name in ("width", "depth", "heads")}
        if not set(names) - found.keys():
            return found
        plain = self.counts((point.size, None, point.context, ()))
        counts = self.counts((point.size, point.method, point.context, _model_overrides(point)))
        n_tokens = self.tokens(point, plain) if {"n_tokens", "flops", "lr"} & set(names) else None
        found |= {"n_params": counts["n_params_non_embedding"], "n_params_total": counts["n_params_total"]}
        if n_tokens is not None:
            found |= {"n_tokens": n_tokens, "flops": counts["flops_per_token"] * n_tokens}
        if n_tokens is not None and "lr" in names:
            found["lr"] = self.rate(point, self.methods[point.method], plain["n_params_non_embedding"], n_tokens)[0]
        return found

    def _plan_numbers(self, model_key: tuple[Any, ...], n_tokens: int, batch: int, precision: str) -> dict[str, Any]:
        """Return the planned numbers of a run; runs that differ in seed or rate share them."""
        model, counts = self.model(*model_key), self.counts(model_key)
        return counts | {
            "flops_total": counts["flops_per_token"] * n_tokens,
            "n_steps": n_tokens // (batch * model.context),
            "unique_tokens": min(n_tokens, self.manifest.train.n_windows(model.context) * model.context),
            "memory_bytes": memory_bytes(model, counts["n_params_total"], batch, precision),
        }

    def plan_point(self, point: Point) -> PlannedRun:
        """Resolve one point to the run it stands for; UserError with a line where it cannot be trained."""
        method, size = self.methods[point.method], self.experiment.sizes[point.size]
        model_key = (point.size, point.method, point.context, _model_overrides(point))
        counts = self.counts(model_key)
        plain = self.counts((point.size, None, point.context, ()))
        n_tokens = self.tokens(point, plain)
        rate, rule = self.rate(point, method, plain["n_params_non_embedding"], n_tokens)
        options = training_options(self.experiment, point, method, size)
        training = training_spec(self.experiment, point, options, n_tokens=n_tokens, lr_peak=rate)
        spec = RunSpec(self.model_record(*model_key), self.data, training.to_dict())
        planned = self.planned(model_key, n_tokens, point.batch, point.precision)
        check_compute(self.experiment, point, planned["flops_total"])
        self._check_numbers(point, counts["n_params_total"], n_tokens, planned["memory_bytes"])
        label = label_of(point)
        profile = self.experiment.resources.pick(
            size=point.size, label=point.method, n_params=counts["n_params_non_embedding"]
        )
        check_run(self.experiment, point, method, training, self.experiment.resources.profile(profile))
        settings = self.settings(label, point.batch * point.context, n_tokens, profile, rule)
        return PlannedRun(
            spec.run_id,
            spec,
            settings,
            planned,
            label,
            point.method,
            point.size,
            point.budget,
            point.group,
            point.holdout,
            profile,
        )

    def _check_numbers(self, point: Point, n_params_total: int, n_tokens: int, n_bytes: int) -> None:
        if max(n_params_total, n_tokens, n_bytes) > MAX_COUNT:
            bill = f"{n_params_total:.1e} parameters, {n_tokens:.1e} tokens, {n_bytes:.1e} bytes of memory"
            message = f"{bill} at budget {point.budget}; nothing above {MAX_COUNT:.0e} is planned"
            raise self.experiment.source.error(("sizes", point.size), message)

    def tokens(self, point: Point, plain: Mapping[str, Any]) -> int:
        """Return the budget in tokens; UserError at the budget's line where it is less than one step."""
        try:
            return tokens_of(self.experiment.budgets[point.budget], plain, point.batch * point.context)
        except ValueError as error:
            written = self.experiment.source.value["budgets"]
            names = (
                list(written)
                if isinstance(written, dict)
                else list(map(str, written if isinstance(written, list) else [written]))
            )
            place = point.budget if isinstance(written, dict) else names.index(point.budget)
            raise self.experiment.source.error(("budgets", place), f"{error} (size {point.size})") from None

    def rate(self, point: Point, method: Method, n_params_here: int, n_tokens: int) -> tuple[float, str]:
        """Return the peak rate of a point and the rule it came from."""
        if point.lr is not None:
            return point.lr * point.lr_factor, GRID_RATE
        rule = method.lr or self.experiment.lr or DEFAULT_RULE
        place = RatePlace(point.method, method.method, point.size, point.budget, n_params_here, n_tokens)
        try:
            rate = resolve_rate(rule, place, n_params_of=self.n_params_of, laws=self.laws)
        except ValueError as error:
            raise self.experiment.source.error(self._rate_path(method), str(error)) from None
        return rate * point.lr_factor, describe_rule(rule)

    def _rate_path(self, method: Method) -> KeyPath:
        place = self.experiment.methods.index(method)
        return (*method_path(self.experiment, place), "lr") if method.lr else ("lr",)


def _model_overrides(point: Point) -> OptionOverrides:
    return tuple((key, value) for key, value in point.overrides if key.partition(".")[0] in MODEL_OVERRIDES)


def label_of(point: Point) -> str:
    """Name the curve of a point: its method, and every override, since those are different methods to a reader."""
    shown = ", ".join(f"{key.partition('.')[2]}={value}" for key, value in point.overrides)
    return f"{point.method} ({shown})" if shown else point.method


def run_settings(
    experiment: Experiment, label: str, batch_tokens: int, n_tokens: int, profile_name: str, lr_rule: str
) -> dict[str, Any]:
    """Return what is recorded of how a run is carried out and never changes its result."""
    evaluation, profile = experiment.evaluation, experiment.resources.profile(profile_name)
    times = [extent.to_tokens(n_tokens, batch_tokens) for extent in evaluation.at]
    if evaluation.every:
        times += range(every := evaluation.every.to_tokens(n_tokens, batch_tokens), n_tokens, every)
    return Settings(
        evaluate_at=tuple(sorted({tokens for tokens in times if 0 < tokens < n_tokens})),
        diagnostics_at=tuple(extent.to_tokens(n_tokens, batch_tokens) for extent in experiment.diagnostics.at),
        log_every_steps=experiment.log_every_steps,
        checkpoint_every_s=experiment.checkpoint_every_s,
        compile=experiment.compile,
        mirrors=tuple(mirror.model_dump() for mirror in experiment.mirrors),
        profile=profile_name,
        threads=profile.threads,
        devices=profile.devices,
        micro_batch_sequences=profile.micro_batch,
        label=label,
        lr_rule=lr_rule,
    ).to_dict()
