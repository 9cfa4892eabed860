"""experiments.yaml -> Experiment, read and checked: the door to this room."""

from pathlib import Path

from pydantic import ValidationError

from scalewright.orchestrator.config.check import check_names
from scalewright.orchestrator.config.experiment import Experiment
from scalewright.orchestrator.config.ladder import with_ladder
from scalewright.orchestrator.config.own_code import with_own_code
from scalewright.orchestrator.config.section import explain
from scalewright.orchestrator.config.yaml_text import YamlText, parse_yaml
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
    source = _read_extended(text, file, ())
    if "source" in source.value:
        raise source.error(("source",), "unknown key")
    try:
        experiment = Experiment.model_validate({**source.value, "source": source})
    except ValidationError as error:
        raise explain(error, source) from None
    experiment = with_own_code(with_ladder(experiment))
    check_names(experiment)
    return experiment


def _read_extended(text: str, file: str, extending: tuple[str, ...]) -> YamlText:
    """Parse an experiment; under `extends`, each key that it lacks is taken whole from that file, save the name."""
    source = parse_yaml(text, file)
    if not isinstance(source.value, dict):
        raise source.error((), "expected keys such as `experiment:`, `sizes:`, `budgets:`, `methods:`")
    if source.value.get("extends") is None:
        return source
    if not isinstance(source.value["extends"], str):
        raise source.error(("extends",), "expected the name of one file, such as main.yaml")
    base = Path(file).parent / source.value["extends"]
    chain = (*extending, str(Path(file).resolve()))
    if str(base.resolve()) in chain:
        raise source.error(("extends",), f"{source.value['extends']} extends this file, so neither has a beginning")
    try:
        written = base.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else "no such file"
        raise source.error(("extends",), f"{source.value['extends']}: {why}") from None
    return source.over(_read_extended(written, str(base), chain), without="experiment")
