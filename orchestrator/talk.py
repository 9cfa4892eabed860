"""What is said to a person besides the answer: on stderr, and never at the cost of what is being done."""

import os
import sys
from contextlib import suppress

from scalewright.orchestrator.files import printable


def say(words: str, *, end: str = "\n") -> None:
    """Write a line to stderr; where that cannot be written (its disk is full, nobody listens) it is not said.

    Written at once, past Python's own buffer: what could not be written there would fail again when the process ends.
    """
    text = printable(words) + end
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()
        try:
            descriptor = sys.stderr.fileno()
        except (OSError, ValueError, AttributeError):  # a test, or a program that put something else there
            sys.stderr.write(text)
            return
        os.write(descriptor, text.encode(errors="replace"))
