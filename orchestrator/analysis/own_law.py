"""Laws of a user's own file: `--law ./mine.py:LAW`."""

from pathlib import Path

from scalewright.fitting.laws import LAWS
from scalewright.models.errors import ModelError
from scalewright.models.own import is_own, own_record
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import read_code


def known_law(name: str) -> str:
    """Return the name that LAWS has a law by, after taking in the one of a file, relative to the current folder.

    Raises UserError in one line where the file, the constant in it, or its name cannot be taken.
    """
    if not is_own(name):
        return name
    from scalewright.fitting.laws.additive import AdditiveLaw

    written, _, constant = name.rpartition(":")
    file = Path(written).name
    try:
        law = own_record(f"{file}:{constant}", {file: read_code(Path(written))}, AdditiveLaw)
        LAWS.add(law)
    except (ModelError, ValueError) as error:
        raise UserError(f"--law {name}: {error}") from None
    return law.name
