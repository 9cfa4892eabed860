"""What tests of verbs share: a verb as a person types it."""

import pytest

from scalewright.orchestrator.cli import run


@pytest.fixture
def say(capsys):
    """Run a verb; return (exit code, stdout, stderr)."""

    def verb(*words):
        code = run([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return verb
