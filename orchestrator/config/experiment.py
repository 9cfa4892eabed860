"""experiments.yaml -> Experiment: every section and its defaults. Knows the text, not the models nor the database.

What the names in it refer to is checked in config_check; what a value may look like is in values.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from scalewright.orchestrator.config import values
from scalewright.orchestrator.config.axes import Conditions, Group, Groups, Selectors
from scalewright.orchestrator.config.rates import RateRule
from scalewright.orchestrator.config.resources import DEFAULT_EXECUTOR, Executor, Resources, Retry
from scalewright.orchestrator.config.section import (
    Budget,
    Count,
    Duration,
    Name,
    Options,
    Positive,
    Section,
    Share,
    Text,
    Truth,
    Whole,
    one_of,
    read_list,
    read_many,
)
from scalewright.orchestrator.config.shapes import IsoFlop, Ladder
from scalewright.orchestrator.config.training import Diagnostics, Divergence, Evaluation, Optimizer, Precision, Schedule
from scalewright.orchestrator.config.tune import Tune
from scalewright.orchestrator.config.yaml_text import YamlText

MAX_SEEDS = 10_000
MIRRORS = ("tensorboard", "mlflow", "wandb")


class DataSource(Section):
    """The corpus and how it becomes tokens; the defaults are the embedded corpus, read as bytes."""

    corpus: Annotated[tuple[Text, ...], BeforeValidator(read_many)] = ("embedded",)
    tokenizer: Text = "bytes"
    vocab_size: Count | None = None
    lossy_tokenizer: Truth = False
    field: Text = "text"
    validation: Share = 0.02
    dir: Text | None = None


class Size(Section):
    """A named model shape."""

    width: Count
    depth: Count
    heads: Count
    mlp_width: Count | None = None
    rope_base: Positive | None = None
    norm_eps: Positive | None = None
    optimizer: Optimizer | None = None
    schedule: Schedule | None = None


class Method(Section):
    """One curve of the figures: a method with its options, gate and init, and how it is trained.

    code: the texts of the user's files that method and gate come from, by file name.
    """

    label: Text | None = None
    method: Text
    options: Options = {}
    gate: Text = "none"
    gate_options: Options = {}
    init: Text | None = None
    init_options: Options = {}
    experimental: Truth = False
    recipe: Text | None = None
    lr: RateRule | None = None
    optimizer: Optimizer | None = None
    schedule: Schedule | None = None
    code: Annotated[dict[str, str], Field(exclude=True)] = {}

    @property
    def name(self) -> str:
        """The label a figure shows: the one given, else the method, its gate and its init; of files the constant."""
        method, gate = (name.rpartition(":")[2] for name in (self.method, self.gate))
        init = f" ({self.init})" if self.init else ""
        return self.label or f"{method}{'' if gate == 'none' else f'+{gate}'}{init}"


class OwnRecipe(Section):
    """A named recipe of the file's own: a known one and what changes in it."""

    base: Text
    optimizer: Optimizer | None = None
    schedule: Schedule | None = None


class Mirror(Section):
    """A logger that gets a copy of a run's metrics; `options` go to it by name."""

    name: Annotated[str, BeforeValidator(one_of(*MIRRORS, what="mirror"))]
    options: Options = {}


class Comparison(Section):
    """A method and the baseline it is compared with, by label."""

    method: Text
    baseline: Text


def read_sizes(value: Any) -> Any:
    """Read named sizes; ValueError for anything else."""
    if not isinstance(value, dict) or not value:
        raise ValueError("expected named sizes, for example  small: {width: 32, depth: 2, heads: 2}")
    return value


def read_budgets(value: Any) -> Any:
    """Read budgets as a mapping by name; in a list each is named by its own text."""
    if isinstance(value, dict):
        return {str(name): value[name] for name in read_many(list(value))}
    return {str(item): item for item in read_many(value)}


def read_methods(value: Any) -> Any:
    """Read methods: a list, one, or a mapping by label."""
    if isinstance(value, dict):
        if not value:
            raise ValueError("must hold at least one method")
        return tuple({"label": label} | split_method(item) for label, item in value.items())
    return tuple(split_method(item) for item in read_many(value))


def split_method(value: Any) -> Any:
    """Complete the short form `pre-ln+gpas`: a method, and its gate after the last plus."""
    if not isinstance(value, str):
        return value
    method, plus, gate = value.rpartition("+")
    return {"method": method, "gate": gate} if plus and gate else {"method": value}


def read_seeds(value: Any) -> Any:
    """Read a list of seeds; one number n stands for the seeds 0 to n-1."""
    if isinstance(value, list | tuple):
        return tuple(value)
    n_seeds = values.read_positive_count(value)
    if n_seeds > MAX_SEEDS:
        raise ValueError(f"{n_seeds:,} seeds; at most {MAX_SEEDS:,} (one number is how many, a list which)")
    return tuple(range(n_seeds))


def _read_pair(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    method, over, baseline = value.partition(" over ")
    if not over:
        raise ValueError(f'{values.show(value)} is not a comparison; write "angpt over gpt+"')
    return {"method": method.strip(), "baseline": baseline.strip()}


def read_pairs(value: Any) -> Any:
    """Read comparisons, `METHOD over BASELINE` each."""
    return tuple(_read_pair(item) for item in read_list(value))


def read_mirrors(value: Any) -> Any:
    """Read mirrors: a name stands for one without options."""
    return tuple({"name": item} if isinstance(item, str) else item for item in read_list(value))


def read_data(value: Any) -> Any:
    """Read the data: a path or a list of them stands for the corpus."""
    return {"corpus": value} if isinstance(value, str | list) else value


def read_at(value: Any) -> Any:
    """Read diagnostics: parts of the run stand for `at`."""
    return value if isinstance(value, dict) or value is None else {"at": value}


class Experiment(Section):
    """One named grid: what is trained, how, and where.

    asked_params: of each size that was solved for, the parameters asked for. places: pairs of size and budget that the
    grid is made of; None: all. Both are worked out from the rest.
    """

    name: Name = Field(alias="experiment")
    extends: Text | None = None
    data: Annotated[DataSource, BeforeValidator(read_data)] = DataSource()
    sizes: Annotated[dict[str, Size], BeforeValidator(read_sizes)] = {}
    ladder: Ladder | None = None
    budgets: Annotated[dict[str, Budget], BeforeValidator(read_budgets)] = {}
    isoflop: IsoFlop | None = None
    methods: Annotated[tuple[Method, ...], BeforeValidator(read_methods)]
    seeds: Annotated[tuple[Whole, ...], BeforeValidator(read_seeds)] = (0,)
    batch: Annotated[tuple[Count, ...], BeforeValidator(read_many)] = (8,)
    context: Annotated[tuple[Count, ...], BeforeValidator(read_many)] = (128,)
    precision: Annotated[tuple[Precision, ...], BeforeValidator(read_many)] = ("fp32",)
    lr: RateRule | None = None
    tune: Tune | None = None
    lr_factor: Annotated[tuple[Positive, ...], BeforeValidator(read_many)] = (1.0,)
    optimizer: Optimizer | None = None
    schedule: Schedule | None = None
    recipes: dict[str, OwnRecipe] = {}
    grid: Groups = (Group(),)
    when: Conditions = ()
    exclude: Selectors = ()
    holdout: Selectors = ()
    compare: Annotated[tuple[Comparison, ...], BeforeValidator(read_pairs)] = ()
    evaluation: Evaluation = Evaluation()
    divergence: Divergence = Divergence()
    diagnostics: Annotated[Diagnostics, BeforeValidator(read_at)] = Diagnostics()
    mirrors: Annotated[tuple[Mirror, ...], BeforeValidator(read_mirrors)] = ()
    log_every_steps: Count = Field(default=10, alias="log_every")
    checkpoint_every_s: Duration = Field(default=60.0, alias="checkpoint_every")
    compile: Truth = False
    shared_trunk: Truth = False
    database: Text | None = None
    executor: Executor = DEFAULT_EXECUTOR
    resources: Resources = Resources()
    max_parallel: Count | None = None
    retry: Retry = Retry()
    notify: Text | None = None
    source: Annotated[YamlText, Field(exclude=True, repr=False)]
    asked_params: Annotated[dict[str, float], Field(exclude=True)] = {}
    places: Annotated[frozenset[tuple[str, str]] | None, Field(exclude=True)] = None

    @property
    def labels(self) -> tuple[str, ...]:
        """What methods are called in this experiment, in the order of the file."""
        return tuple(method.name for method in self.methods)

    @property
    def all_seeds(self) -> set[int]:
        """Every seed that a point of the grid may have."""
        axes = [values for group in self.grid for values in (group.axes, group.zip)]
        return {*self.seeds, *(seed for values in axes for seed in values.get("seed", ()))}
