"""What planning reads of training and data answers at once: it imports neither torch nor lightning."""

import subprocess
import sys

MODULES = (
    "scalewright.orchestrator.data.prepare",
    "scalewright.orchestrator.data.manifest",
    "scalewright.orchestrator.train.schedules",
    "scalewright.orchestrator.train.divergence",
    "scalewright.orchestrator.train.groups",
    "scalewright.orchestrator.train.assignment",
    "scalewright.orchestrator.train.sampler",
    "scalewright.orchestrator.train.progress",
    "scalewright.orchestrator.train.tasks",
    "scalewright.orchestrator.jobs.job",
)


def test_the_plain_modules_of_training_import_no_torch() -> None:
    heavy = "{'torch', 'lightning', 'tokenizers'}"
    program = f"import sys, {', '.join(MODULES)}; print(sorted({heavy} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
