"""What planning reads of training and data answers at once: it imports neither torch nor lightning."""

import subprocess
import sys

MODULES = (
    "orchestrator.data.prepare",
    "orchestrator.data.manifest",
    "orchestrator.train.schedules",
    "orchestrator.train.divergence",
    "orchestrator.train.groups",
    "orchestrator.train.assignment",
    "orchestrator.train.sampler",
    "orchestrator.train.progress",
    "orchestrator.train.tasks",
    "orchestrator.job",
)


def test_the_plain_modules_of_training_import_no_torch() -> None:
    heavy = "{'torch', 'lightning', 'tokenizers'}"
    program = f"import sys, {', '.join(MODULES)}; print(sorted({heavy} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
