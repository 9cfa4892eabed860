"""What a table offers, help and pages name; what help and pages name exists. A new entry needs no new test."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from scalewright.db.run_states import STATES
from scalewright.fitting.choices import APPROACHES, ASSUMED, CURVES, FLOP_CONVENTIONS, N_CONVENTIONS, SETTINGS
from scalewright.fitting.figures.gallery import FIGURES
from scalewright.fitting.laws import LAWS
from scalewright.fitting.objectives import OBJECTIVES
from scalewright.models.gating import GATES
from scalewright.models.inits import INITS
from scalewright.models.methods import METHODS
from scalewright.orchestrator.analysis.fits import HELD_OUT, LOSSES
from scalewright.orchestrator.cli import app
from scalewright.orchestrator.cli.names import NAMES as TABLES
from scalewright.orchestrator.cli.verbs import GROUPS, VERBS
from scalewright.orchestrator.config.axes import AXES
from scalewright.orchestrator.config.experiment import MIRRORS
from scalewright.orchestrator.config.rates import RATE_RULES
from scalewright.orchestrator.config.recipes import OPTIMIZERS, PRECISIONS, RECIPES
from scalewright.orchestrator.config.resources import EXECUTORS
from scalewright.orchestrator.sync.point_columns import NAMES, TOKEN_RULES
from scalewright.orchestrator.sync.table_files import WRITERS
from scalewright.orchestrator.train.groups import DECAY
from scalewright.orchestrator.train.schedules import SCHEDULES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
IN_HELP = {
    ("fit", "law"): [*LAWS, *APPROACHES],
    ("fit", "objective"): OBJECTIVES,
    ("fit", "n_convention"): N_CONVENTIONS,
    ("fit", "flop_convention"): FLOP_CONVENTIONS,
    ("fit", "holdout"): HELD_OUT,
    ("fit", "loss"): LOSSES,
    ("compare", "curve"): CURVES,
    ("hyper", "setting"): SETTINGS,
    ("design", "assume"): ASSUMED,
    ("submit", "executor"): EXECUTORS,
    ("runs", "state"): STATES,
    ("export", "target"): WRITERS,
    ("import", "columns"): NAMES,
    ("import", "tokens_from_flops"): TOKEN_RULES,
}
ON_A_PAGE = {
    "analysing.md": [OBJECTIVES, LOSSES, SETTINGS, APPROACHES],
    "experiments-yaml.md": [
        AXES,
        DECAY,
        EXECUTORS,
        MIRRORS,
        OPTIMIZERS,
        PRECISIONS,
        RATE_RULES,
        RECIPES,
        SCHEDULES,
    ],
    "figures.md": [FIGURES],
    "fitting.md": [LAWS, OBJECTIVES, APPROACHES, N_CONVENTIONS, CURVES],
    "methods.md": [METHODS, GATES, INITS],
}


def verbs():
    """Return every verb by its words ("fit", "db backup")."""

    def walk(command, words):
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, (*words, name))
        if words and not hasattr(command, "commands"):
            yield " ".join(words), command

    return dict(walk(typer.main.get_command(app), ()))


def help_of(verb, parameter):
    command = verbs()[verb]
    command.get_help(typer.Context(command))
    return next(one.help for one in command.params if one.name == parameter)


def names_in(text):
    return set(re.findall(r"[\w.+-]*\w\+?", text))


@pytest.mark.parametrize("verb,parameter", IN_HELP)
def test_help_names_every_entry_of_the_table(verb, parameter):
    assert {name.lstrip(".") for name in IN_HELP[verb, parameter]} <= {
        name.lstrip(".") for name in names_in(help_of(verb, parameter))
    }


def test_a_new_law_is_in_the_help_of_fit_without_another_line(monkeypatch, capsys):
    from scalewright.orchestrator.cli import run

    monkeypatch.setitem(LAWS.targets, "bent", LAWS.targets["power"])
    assert run(["fit", "--help"]) == 0
    assert "bent" in names_in(capsys.readouterr().out)


HEAVY = ("numpy", "scipy", "pandas", "matplotlib", "sqlalchemy", "torch", "lightning", "pyarrow", "tokenizers")
PRINT_EVERY_HELP = """
import sys, typer
from scalewright.orchestrator.cli import app
def walk(command):
    command.get_help(typer.Context(command))
    for inner in getattr(command, "commands", {}).values():
        walk(inner)
walk(typer.main.get_command(app))
print(*sys.modules)
"""


def test_no_help_imports_a_heavy_package():
    done = subprocess.run([sys.executable, "-c", PRINT_EVERY_HELP], capture_output=True, text=True, check=True)
    assert sorted(set(done.stdout.split()) & set(HEAVY)) == []


def test_the_list_of_verbs_imports_none_of_their_modules():
    code = "import sys; from scalewright.orchestrator.cli import run; run(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    listed, modules = done.stdout.rstrip().rsplit("\n", 1)
    families = {*VERBS, *(module for group in GROUPS.values() for module in group.verbs)}
    assert set(modules.split()) & {f"scalewright.orchestrator.cli.{one}" for one in families} == set()
    for verb, command in verbs().items():
        line = command.help.split(".")[0][:30]
        assert " " in verb or f"  {verb} " in listed and line in listed, verb


def test_every_public_function_of_a_verbs_module_with_options_is_a_verb():
    """A function that is missing in the table of verbs would be a verb that nobody can call."""
    called = {command.callback.__wrapped__ for command in verbs().values()}
    for module in {one.__module__ for one in called}:
        public = [one for one in vars(sys.modules[module]).values() if getattr(one, "__module__", "") == module]
        assert [one for one in public if "Example: scalewright" in (one.__doc__ or "")] == [
            one for one in public if one in called
        ]


def test_no_help_lists_the_names_of_a_table_by_hand():
    """An example (`E=1.6`) and the one name that is explained may stand there; two names of a table are a list."""
    for verb, command in verbs().items():
        for parameter in command.params:
            written = names_in(re.sub(r"\w+=\S+", "", getattr(parameter, "help", None) or ""))
            for key, names in TABLES.items() - {("points", TABLES["points"])}:  # method, run, size: words of their own
                by_hand = written & {name.lstrip(".") for name in names()}
                assert len(by_hand) < 2, f"{verb} --{parameter.name}: {sorted(by_hand)} by hand; write {{{key}}}"


@pytest.mark.parametrize("page,table", [(page, table) for page, tables in ON_A_PAGE.items() for table in tables])
def test_the_page_names_every_entry_of_the_table(page, table):
    text = (ROOT / "docs" / page).read_text()
    assert [name for name in table if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)] == []


def row_of(verb):
    """Return the row of a verb in docs/commands.md: what its help says."""
    does, _, example = verbs()[verb].help.split("\n\n")[0].replace("\n", " ").partition(" Example: ")
    return f"| `{verb}` | {does} | `{example.strip()}` |"


def test_the_page_of_commands_has_the_row_of_every_verb_and_no_other():
    rows = [line for line in (ROOT / "docs" / "commands.md").read_text().splitlines() if line.startswith("| `")]
    assert rows == [row_of(verb) for verb in verbs()]


def commands_on(page):
    """Yield the commands that a page shows, as words: lines of code blocks, and code in a sentence."""
    text = page.read_text()
    blocks = [*re.findall(r"```\w*\n(.*?)```", text, re.DOTALL), *re.findall(r"^    .*$", text, re.MULTILINE)]
    for line in re.findall(r"^ *(?:\$ )?scalewright (.+)$", "\n".join(blocks), re.MULTILINE):
        yield line.split(" #")[0].split()
    for line in re.findall(r"`scalewright ([^`]+)`", text):
        yield line.split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_on_a_page_exists_with_its_options(page):
    for words in commands_on(page):
        verb = next((verb for n in (2, 1) if (verb := " ".join(words[:n])) in verbs()), None)
        if verb is None:
            groups = {name.split()[0] for name in verbs() if " " in name}
            own = {*groups, "--help", "--install-completion"}
            assert words[0] in own or not re.fullmatch(r"[a-z-]+", words[0]), f"{page.name}: {words}"
            continue
        known = {option for parameter in verbs()[verb].params for option in parameter.opts} | {"--help"}
        given = {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)}
        assert given <= known, f"{page.name}: {verb} {sorted(given - known)}"


def test_the_shell_completes_verbs_and_options():
    code = "import sys; sys.argv[0] = 'scalewright'; from scalewright.orchestrator.cli import main; main()"
    for typed, place, found in (("scalewright figu", 1, "figures"), ("scalewright figures --ch", 2, "--check")):
        asked = {"_SCALEWRIGHT_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(place)}
        told = subprocess.run([sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True)
        assert told.stdout.split() == [found]


COINED = re.compile(r"\b(carriers?|lanes?)\b")  # of the code: what architecture.md explains, and nobody else needs


def test_help_speaks_no_words_of_the_code():
    for verb, command in verbs().items():
        assert not COINED.findall(command.get_help(typer.Context(command))), verb


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in ("architecture.md", "LOG.md")])
def test_pages_speak_no_words_of_the_code(page):
    assert not COINED.findall(page.read_text())
