"""Where the running code lies."""

from importlib.util import find_spec
from pathlib import Path


def code_root() -> Path:
    """Return the folder that holds the running package: a clone, a snapshot or site-packages."""
    found = find_spec("scalewright")
    assert found is not None and found.origin is not None
    return Path(found.origin).resolve().parent.parent
