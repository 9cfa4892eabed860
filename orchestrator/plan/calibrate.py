"""Times a few steps of each shape whose speed nobody has measured: what `plan --calibrate` adds to the bill."""

from collections.abc import Callable, Sequence

from scalewright.orchestrator.config.experiment import Experiment
from scalewright.orchestrator.config.resources import EXECUTORS
from scalewright.orchestrator.plan.bill import ThroughputKey, Throughputs, throughput_key
from scalewright.orchestrator.plan.runs import PlannedRun

SECONDS = 0.5  # a shape

Say = Callable[[int, int], None]


def calibrate(
    experiment: Experiment, runs: Sequence[PlannedRun], measured: Throughputs, say: Say
) -> dict[ThroughputKey, float]:
    """Return tokens a second of every shape among the runs that `measured` lacks, timed here and now.

    Raises UserError where the jobs would not run on this machine.
    """
    if not EXECUTORS[experiment.executor].on_this_machine:
        why = f"--calibrate times steps on this machine, and jobs of {experiment.executor} run elsewhere"
        raise experiment.source.error(("executor",), f"{why}; one short run there gives the bill its speed")
    from scalewright.orchestrator.train.calibrate import has_gpu, tokens_per_s

    without = [name for name, one in experiment.resources.profiles.items() if one.gpus] if not has_gpu() else []
    if without:
        why = "asks for a GPU, and this machine has none to time"
        raise experiment.source.error(("resources", "profiles", without[0], "gpus"), why)
    shapes = {throughput_key(run, experiment.resources.profile(run.profile)): run for run in reversed(runs)}
    missing = {key: run for key, run in shapes.items() if key not in measured}
    found = {}
    for number, (key, run) in enumerate(missing.items()):
        say(number, len(missing))
        found[key] = tokens_per_s(run.spec, run.settings, seconds=SECONDS)
    if missing:
        say(len(missing), len(missing))
    return found
