"""experiments.yaml -> Plan, with the data prepared and the database asked; and the plan -> database. No torch."""

import gc
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scalewright.orchestrator.config.experiment import Experiment
from scalewright.orchestrator.config.load import load_experiment
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.plan.bill import Plan, price
from scalewright.orchestrator.plan.calibrate import calibrate
from scalewright.orchestrator.plan.earlier_runs import StoredLaws, StoredOptima, read_known
from scalewright.orchestrator.plan.expand import unused_selectors
from scalewright.orchestrator.plan.isoflop import with_isoflop
from scalewright.orchestrator.plan.runs import DataManifest, PlannedRun, Planner, plan_runs
from scalewright.orchestrator.plan.stages import plan_stage
from scalewright.orchestrator.plan.trunks import share_trunks, trunk_notes
from scalewright.orchestrator.study import Study

if TYPE_CHECKING:
    from scalewright.db.store import PlanReceipt
    from scalewright.orchestrator.data.manifest import Manifest

EMBEDDED = "embedded"
LEAST_SHARE = 1e-6  # of a text of which both splits are read: one document goes into the second
Progress = Callable[[int, int], None]


def study_of(experiment: Experiment) -> Study:
    """Return the study of the experiment's file; SCALEWRIGHT_DB wins over its `database:`."""
    database = None if os.environ.get("SCALEWRIGHT_DB") else experiment.database
    return Study.at(experiment.source.file, database=resolve_database(experiment, database))


def resolve_database(experiment: Experiment, database: str | None) -> str | None:
    """Make a path of a database relative to the experiment's file; a URL stays."""
    if database is None or "://" in database:
        return database
    return str(Path(experiment.source.file).resolve().parent / database)


def prepare_data(experiment: Experiment, study: Study, *, progress: Progress | None = None) -> tuple["Manifest", Path]:
    """Return the manifest of the experiment's data and its folder, making the shards where they are missing.

    Asking again costs a millisecond. Raises UserError for a missing file or a wrong tokenizer.
    """
    from scalewright.orchestrator.data.prepare import prepare

    data, here = experiment.data, Path(experiment.source.file).resolve().parent
    sources, tokenizer = _data_sources(experiment, here), tokenizer_name(experiment, here)
    folder = (
        here / data.dir if data.dir else study.data_dir / folder_name(sources, tokenizer, data.validation, data.field)
    )
    try:
        if data.dir:
            return read_shards(folder), folder
        manifest = prepare(
            sources,
            tokenizer,
            folder,
            validation_fraction=data.validation,
            text_field=data.field,
            lossy_tokenizer=data.lossy_tokenizer,
            progress=progress,
        )
        return manifest, folder
    except UserError as error:
        raise experiment.source.error(("data",), str(error)) from None


def read_shards(folder: Path) -> "Manifest":
    """Return the manifest of a folder made elsewhere; raises UserError where a shard is not what the manifest says."""
    from scalewright.orchestrator.data import manifest

    found = manifest.read(folder)
    for split in ("train", "validation"):
        manifest.open_split(found, folder, split)
    return found


def prepare_corpora(
    experiment: Experiment, study: Study, manifest: "Manifest", data_dir: Path, *, progress: Progress | None = None
) -> dict[str, Path]:
    """Return the folders of the texts under `evaluation.corpora`, in tokens of the training data's tokenizer.

    Raises UserError at the key for a file that is missing or gives no window.
    """
    from scalewright.orchestrator.data.prepare import prepare
    from scalewright.orchestrator.data.tokenizers import TOKENIZER_FILE
    from scalewright.orchestrator.train.sampler import read_corpus

    here, found = Path(experiment.source.file).resolve().parent, {}
    in_bytes = manifest.tokenizer["name"] == "bytes"
    tokenizer = "bytes" if in_bytes else str(manifest.folder(data_dir) / TOKENIZER_FILE)
    for name, paths in experiment.evaluation.corpora.items():
        sources: list[str | Path] = [here / Path(path).expanduser() for path in paths]
        folder = study.data_dir / f"corpus-{folder_name(sources, tokenizer, LEAST_SHARE, experiment.data.field)}"
        try:
            made = prepare(
                sources,
                tokenizer,
                folder,
                validation_fraction=LEAST_SHARE,
                text_field=experiment.data.field,
                lossy_tokenizer=experiment.data.lossy_tokenizer,
                progress=progress,
            )
            for context in experiment.context:
                read_corpus(folder, made, context, 1)
        except UserError as error:
            raise experiment.source.error(("evaluation", "corpora", name), str(error)) from None
        found[name] = folder
    return found


def _data_sources(experiment: Experiment, here: Path) -> list[str | Path]:
    from scalewright.orchestrator.data.sources import DEFAULT_CORPUS

    embedded = (EMBEDDED, DEFAULT_CORPUS)
    return [DEFAULT_CORPUS if name in embedded else here / Path(name).expanduser() for name in experiment.data.corpus]


def skipped_files(experiment: Experiment) -> list[str]:
    """Say which files of the corpus' folders are not read."""
    from scalewright.orchestrator.data.sources import what_was_skipped

    here = Path(experiment.source.file).resolve().parent
    return [] if experiment.data.dir else what_was_skipped(_data_sources(experiment, here))


def tokenizer_name(experiment: Experiment, here: Path) -> str:
    """Return the tokenizer as `prepare` takes it: bytes, bpe:SIZE, or the path of a tokenizer file."""
    data = experiment.data
    if data.tokenizer == "bytes":
        return "bytes"
    if data.tokenizer == "bpe":
        return f"bpe:{data.vocab_size}"
    return str(here / Path(data.tokenizer).expanduser())


def folder_name(sources: list[str | Path], tokenizer: str, validation: float, field: str) -> str:
    """Name a folder for what is asked for, readable, and different for different requests."""
    request = "\n".join([*map(str, sources), tokenizer, repr(validation), *[field] * (field != "text")])
    stem = Path(sources[0]).name.partition(".")[0]
    kind = Path(tokenizer).stem.replace(":", "-")
    return f"{stem}-{kind}-{hashlib.sha256(request.encode()).hexdigest()[:6]}"


def plan(
    experiment: Experiment,
    manifest: DataManifest,
    study: Study,
    *,
    data_dir: Path | None = None,
    corpora: Mapping[str, Path] | None = None,
    timing: Progress | None = None,
) -> Plan:
    """Return the runs of the experiment with their bill, and what the study's database knows of them."""
    check_windows(experiment, manifest)
    experiment = with_isoflop(experiment, manifest.vocab_size, StoredOptima(study))
    known = read_known(study)
    runs = plan_runs(experiment, manifest, laws=StoredLaws(study))
    runs = share_trunks(experiment, runs) if experiment.shared_trunk else runs
    if data_dir is not None:
        texts = {name: str(folder.resolve()) for name, folder in (corpora or {}).items()}
        where = {"data_dir": str(data_dir.resolve()), "corpora": texts}
        settings = {id(run.settings): run.settings | where for run in runs}  # many runs share one
        runs = [replace(run, settings=settings[id(run.settings)]) for run in runs]
    measured = known.throughputs
    if timing:
        measured = {**measured, **calibrate(experiment, runs, measured, timing)}
    priced = price(experiment, runs, states=known.states, measured=measured)
    facts = Planner(experiment, manifest, StoredLaws(study)).facts
    unmet = [f"{name} matches no point of the grid" for name in unused_selectors(experiment, facts)]
    priced = replace(priced, notes=(*priced.notes, *trunk_notes(priced)))
    return replace(priced, warnings=(*priced.warnings, *unmet, *_repeated_data(runs, manifest)))


def check_windows(experiment: Experiment, manifest: DataManifest) -> None:
    """Raise UserError where the validation split is smaller than what is to be evaluated."""
    for context in experiment.context:
        there = manifest.validation.n_windows(context)
        if there < experiment.evaluation.n_windows:
            message = (
                f"{experiment.evaluation.n_windows} windows of {context} tokens, the validation split has {there}; "
                "give more text, a larger data.validation, or fewer windows: `evaluation: {n_windows: N}`"
            )
            raise experiment.source.error(("evaluation", "n_windows"), message)


def _repeated_data(runs: list[PlannedRun], manifest: DataManifest) -> Iterator[str]:
    longest = max(run.spec.training["n_tokens"] for run in runs)
    if longest > manifest.train.n_tokens:
        yield (
            f"the largest budget passes {longest / manifest.train.n_tokens:.1f} times over {manifest.train.n_tokens:,} "
            "training tokens: laws that assume fresh data do not hold there"
        )


@contextmanager
def _without_collections() -> Iterator[None]:
    """Hold off the garbage collector: a plan's records all live to its end, and it walks them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_without_collections()
def plan_file(
    path: str | Path, *, progress: Progress | None = None, timing: Progress | None = None
) -> tuple[Plan, Study]:
    """Load, prepare the data and plan what comes now: what `plan`, `submit` and `demo` begin with.

    timing: hears how many of how many shapes were timed; without it none is.

    With `tune:` that is the sweep, and the grid once the database knows that the sweep has ended.
    """
    experiment = load_experiment(path)
    study = study_of(experiment)
    manifest, data_dir = prepare_data(experiment, study, progress=progress)
    corpora = prepare_corpora(experiment, study, manifest, data_dir, progress=progress)
    plan_one = partial(plan, manifest=manifest, study=study, data_dir=data_dir, corpora=corpora, timing=timing)
    made = plan_stage(experiment, manifest, study, plan_one) if experiment.tune else plan_one(experiment)
    return replace(made, warnings=(*skipped_files(experiment), *made.warnings)), study


@_without_collections()
def record(plan: Plan, study: Study) -> "PlanReceipt":
    """Write the experiment and its runs into the study's database; runs that exist are shared, not doubled."""
    from scalewright.db.engine import open_database
    from scalewright.db.store import PlannedRun, record_experiment
    from scalewright.orchestrator.sync.kept import Plan as KeptPlan
    from scalewright.orchestrator.sync.kept import keep

    shared = ("run_id", "identity", "label", "planned", "settings", "size", "budget", "group", "holdout")
    runs = [PlannedRun(**{name: getattr(run, name) for name in shared}) for run in plan.runs]
    database = open_database(study.database)
    try:
        receipt = record_experiment(database, plan.experiment.name, plan.experiment.source.text, runs)
    finally:
        database.close()
    keep(study, KeptPlan(plan.experiment.name, plan.experiment.source.text, runs))
    return receipt
