"""Where the running code lies."""

from pathlib import Path

import scalewright


def code_root() -> Path:
    """Return the folder that holds the running package: a clone, a snapshot or site-packages."""
    return Path(str(scalewright.__file__)).resolve().parent.parent
