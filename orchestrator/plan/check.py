"""Whether a planned run can be trained as it is written: what a job would refuse is refused here, with line and key."""

from scalewright.orchestrator.config.check import method_path
from scalewright.orchestrator.config.experiment import Experiment, Method
from scalewright.orchestrator.config.resources import Profile
from scalewright.orchestrator.config.yaml_text import KeyPath
from scalewright.orchestrator.plan.expand import Point
from scalewright.orchestrator.runs.training_spec import TrainingSpec
from scalewright.orchestrator.train.schedules import ScheduleError, read_schedule

MOST_OFF = 0.02  # of an isoFLOP curve's compute


def check_run(experiment: Experiment, point: Point, method: Method, training: TrainingSpec, profile: Profile) -> None:
    """Raise UserError with file, line and key path at the first thing that no job can do."""
    _check_schedule(experiment, point, method, training)
    check_batch(experiment, point, profile)


def check_compute(experiment: Experiment, point: Point, flops: float) -> None:
    """A run of an isoFLOP curve has the curve's compute; raises UserError where whole steps miss it by too much."""
    budgets = experiment.isoflop.budgets if experiment.isoflop else ()
    wanted = next((budget.amount for budget in budgets if budget.text == point.budget), None)
    if wanted is not None and abs(flops / wanted - 1) > MOST_OFF:
        off = f"{point.method} at size {point.size} is {flops:.4g} FLOPs in whole steps, {flops / wanted - 1:+.1%}"
        message = f"{off}; at most {MOST_OFF:.0%} is allowed: use a smaller batch or a larger budget"
        raise experiment.source.error(("isoflop", "budgets"), f"{point.budget}: {message}")


def _check_schedule(experiment: Experiment, point: Point, method: Method, training: TrainingSpec) -> None:
    try:
        read_schedule(training.schedule, training.n_tokens)
    except ScheduleError as error:
        path = written_at(experiment, point, method, "schedule", error.key)
        place = f"{point.method}, size {point.size}, budget {point.budget}"
        raise experiment.source.error(path, f"{error} ({place})") from None


def check_batch(experiment: Experiment, point: Point, profile: Profile) -> None:
    """A batch is shared out evenly over the devices, and each share goes through in parts of equal size."""
    share, rest = divmod(point.batch, profile.devices)
    name = next((name for name, each in experiment.resources.profiles.items() if each is profile), "")
    path: KeyPath = ("resources", "profiles", name)
    if rest:
        message = f"{profile.devices} devices do not divide a batch of {point.batch} sequences"
        raise experiment.source.error((*path, "devices"), message)
    if profile.micro_batch and share % min(profile.micro_batch, share):
        message = f"{profile.micro_batch} does not divide the {share} sequences that a device takes of a batch"
        raise experiment.source.error((*path, "micro_batch"), message)


def written_at(experiment: Experiment, point: Point, method: Method, part: str, key: str) -> KeyPath:
    """Return the key path of the layer that decided `part.key` at a point: grid, method, size, experiment, recipe."""
    if any(name in (f"{part}.{key}", f"{part}.name") for name, _ in point.overrides):
        return ("grid",)
    of_method = method_path(experiment, experiment.methods.index(method))
    layers: list[tuple[KeyPath, object]] = [
        ((*of_method, part), method),
        (("sizes", point.size, part), experiment.sizes[point.size]),
        ((part,), experiment),
        (("recipes", method.recipe or "", part), experiment.recipes.get(method.recipe or "")),
    ]
    written = [(path, getattr(layer, part, None)) for path, layer in layers]
    for wanted in (key, "name"):
        for path, section in written:
            if section is not None and wanted in section.model_fields_set:
                return (*path, wanted)
    return of_method
