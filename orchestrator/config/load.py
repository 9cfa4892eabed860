"""experiments.yaml -> Experiment, read and checked: the door to this room."""

from pathlib import Path

from pydantic import ValidationError

from scalewright.orchestrator.config.check import check_names
from scalewright.orchestrator.config.experiment import Experiment
from scalewright.orchestrator.config.section import explain
from scalewright.orchestrator.config.yaml_text import parse_yaml
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.study import find_yaml


def load_experiment(path: str | Path) -> Experiment:
    """Read and check an experiments.yaml; raise UserError in one line with file, line and key path."""
    file = find_yaml(Path(path))
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 text (byte {error.start})") from None
    return read_experiment(text, str(path))


def read_experiment(text: str, file: str = "experiments.yaml") -> Experiment:
    """Check the text of an experiments.yaml; `file` is the name that errors show."""
    source = parse_yaml(text, file)
    if not isinstance(source.value, dict):
        raise source.error((), "expected keys such as `experiment:`, `sizes:`, `budgets:`, `methods:`")
    if "source" in source.value:
        raise source.error(("source",), "unknown key")
    try:
        experiment = Experiment.model_validate({**source.value, "source": source})
    except ValidationError as error:
        raise explain(error, source) from None
    check_names(experiment)
    return experiment
