"""The `scalewright` command: verbs by family, and what each class of error costs. No heavy import."""

import codecs
import errno
import io
import sys

import typer

from scalewright.orchestrator.cli.verbs import Verbs
from scalewright.orchestrator.errors import Partial
from scalewright.orchestrator.talk import say

app = typer.Typer(
    name="scalewright",
    help="Does this change to the Transformer help, by how much, and does the gain hold as models and data grow?",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=Verbs,
    callback=lambda: None,
)

DONE, USER_ERROR, USAGE, PARTIAL, INTERRUPTED = 0, 1, 2, 3, 130
SPELL = "scalewright-spell"
PLAIN_SIGNS = {"−": "-", "×": "x", "─": "-", "·": "*", "…": "...", "≤": "<=", "≥": ">=", "γ": "gamma", "²": "2"}
STOPPED = "interrupted; nothing is lost, the same command continues"


def main() -> None:
    """Run one verb and exit with its class: 0 done, 1 user error, 2 usage, 3 partial, 130 interrupted."""
    write_what_the_terminal_can()
    sys.exit(run(sys.argv[1:]))


def write_what_the_terminal_can() -> None:
    """Let output in another encoding than UTF-8 spell the letters it has not, instead of ending in an error."""
    codecs.register_error(SPELL, spell)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=SPELL)


def spell(error: UnicodeError) -> tuple[str, int]:
    """Write a minus as -, a times sign as x, ...; anything else by its number, `\\u65b9`, so that nothing is lost."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    return "".join(PLAIN_SIGNS.get(one) or f"\\u{ord(one):04x}" for one in letters), error.end


def run(arguments: list[str]) -> int:
    """Run the verb in `arguments` and return its exit code; a user's mistake prints one line on stderr."""
    try:
        code = app(arguments, standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        return _fail(STOPPED, INTERRUPTED)
    except typer.Exit as stop:
        return stop.exit_code
    except Partial as partial:
        return _fail(str(partial), PARTIAL)
    except BrokenPipeError:
        sys.stderr.close()
        return DONE
    except OSError as trouble:
        return _fail(_describe(trouble), USER_ERROR)
    except Exception as mistake:
        known = code_of(mistake)
        if known is None:
            raise
        return known
    if code == INTERRUPTED:  # typer's own answer to Ctrl-C, without a word
        return _fail(STOPPED, INTERRUPTED)
    return code if isinstance(code, int) else DONE


def code_of(mistake: Exception) -> int | None:
    """Print a user's mistake in one line and return its exit code; None for a bug."""
    if hasattr(mistake, "show") and hasattr(mistake, "format_message"):  # what typer raises for a wrong command line
        mistake.show()
        return USAGE
    if is_user_error(mistake):
        return _fail(str(mistake), USER_ERROR)
    return None


def is_user_error(error: Exception) -> bool:
    """Tell a named error of one of the rooms from a bug; the rooms' error modules import nothing heavy."""
    from scalewright.db.errors import DbError
    from scalewright.fitting.errors import FittingError
    from scalewright.models.errors import ModelError
    from scalewright.orchestrator.errors import UserError

    return isinstance(error, UserError | ModelError | FittingError | DbError)


def _describe(trouble: OSError) -> str:
    where = f"{trouble.filename}: " if trouble.filename else ""
    what = f"{where}{trouble.strerror or trouble}"
    if trouble.errno == errno.ENOSPC:
        return f"{what} (the study's folder or the temporary folder); free some space, then repeat the command"
    return what


def _fail(message: str, code: int) -> int:
    say(f"scalewright: {' '.join(message.split())}")
    return code
