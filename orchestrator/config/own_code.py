"""Methods and gates of a user's own file: `method: ./mine.py:MINE` -> `mine.py:MINE` and the text of mine.py."""

from pathlib import Path

from scalewright.models.errors import ModelError
from scalewright.models.gating import Gate
from scalewright.models.methods.method import Method as ModelMethod
from scalewright.models.own import is_own, own_record
from scalewright.orchestrator.config.check import method_path
from scalewright.orchestrator.config.experiment import Experiment, Method
from scalewright.orchestrator.config.models import PLAIN_METHOD
from scalewright.orchestrator.config.yaml_text import KeyPath, YamlText
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import read_code

KINDS = {"method": ModelMethod, "gate": Gate}


def with_own_code(experiment: Experiment) -> Experiment:
    """Read the files that methods and gates name, relative to the YAML; UserError at the line that names one."""
    texts: dict[str, str] = {}
    methods = [_with_code(experiment, place, method, texts) for place, method in enumerate(experiment.methods)]
    return experiment.model_copy(update={"methods": tuple(methods)})


def _with_code(experiment: Experiment, place: int, method: Method, texts: dict[str, str]) -> Method:
    named = {key: name for key in KINDS if is_own(name := getattr(method, key))}
    if not named:
        return method
    source, path = experiment.source, method_path(experiment, place)
    update: dict[str, str] = {}
    for key, name in named.items():
        at = (*path, key) if isinstance(source.at(path), dict) else path
        written, _, constant = name.rpartition(":")
        file = Path(written).name
        text = _read(source, at, written)
        if texts.setdefault(file, text) != text:
            raise source.error(at, f"{written}: two files of this name with different text; rename one")
        update[key] = f"{file}:{constant}"
        try:
            record: object = own_record(update[key], texts, KINDS[key])
        except ModelError as error:
            raise source.error(at, str(error)) from None
        baseline = getattr(record, "baseline", None)
        if baseline not in (None, PLAIN_METHOD) and not experiment.compare:
            raise source.error(at, f"{name}: its baseline is {baseline}; name the pair under `compare:`")
    code = {name: texts[name] for name in sorted({name.rpartition(":")[0] for name in update.values()})}
    return method.model_copy(update={**update, "code": code})


def _read(source: YamlText, at: KeyPath, written: str) -> str:
    home = source.inherited.get(str(at[0]), source).file
    try:
        return read_code(Path(home).parent / written)
    except UserError as error:
        raise source.error(at, str(error)) from None
