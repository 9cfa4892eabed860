"""make mutants: plant small errors in the numeric modules, one at a time, and count those that a test notices.

    python tests/mutants.py [--per-module N] [--seed S] [--only WORD ...]

Works on a copy of the tree. Each module is judged by the tests of its row in ROOMS; the sample is drawn by the seed.
"""

import argparse
import ast
import copy
import importlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 30  # and ten times what the tests need without a mutant
SLOW_IMPORTS = ("torch", "lightning", "scipy.stats", "scipy.optimize", "pandas", "matplotlib.pyplot", "sqlalchemy")
CONTRACT = "tests/contracts/test_yaml_to_log.py"
FITTING, ORCHESTRATOR = "tests/fitting/test_", "tests/orchestrator/"
QUIETLY = ("-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:randomly", "--hypothesis-profile=first")
QUICK = ("-k", "not postgresql or steps_that_go_back")
GRID = (ORCHESTRATOR + "plan/test_grid.py",)
PLAN = (ORCHESTRATOR + "plan/test_plan.py", ORCHESTRATOR + "config/test_recipes.py", CONTRACT)
TRAIN = (ORCHESTRATOR + "train/test_train_schedules.py", ORCHESTRATOR + "train/test_train_run.py", CONTRACT)
SYNC = ("tests/db/test_sync_rules.py", "tests/db/test_sync_order.py", "tests/db/test_frames.py", *QUICK)
STORE = ("tests/db/test_store.py", "tests/db/test_frames.py", *QUICK)
ANALYSIS = (ORCHESTRATOR + "analysis/test_analyze_pairs.py", ORCHESTRATOR + "cli/test_analysing_verbs.py")
WORDS = (ORCHESTRATOR + "report/test_report_words.py", ORCHESTRATOR + "report/test_tables.py", ANALYSIS[0])
CONSTRAINTS = "tests/models/test_constraints.py"
MODELS = ("tests/models/test_spec.py", "tests/models/test_derived_facts.py", "tests/models/test_straight_line.py")


def fitting(*names: str) -> tuple[str, ...]:
    return tuple(f"{FITTING}{name}.py" for name in names)


# module -> the tests that must notice, those that fail soonest first
ROOMS: dict[str, tuple[str, ...]] = {
    "orchestrator/config/rates.py": (ORCHESTRATOR + "config/test_learning_rate.py", *PLAN[:1]),
    "orchestrator/config/values.py": (ORCHESTRATOR + "config/test_values.py", ORCHESTRATOR + "config/test_config.py"),
    "orchestrator/plan/expand.py": (*GRID, *PLAN[:1]),
    "orchestrator/plan/training.py": PLAN,
    "orchestrator/plan/bill.py": PLAN,
    "orchestrator/plan/runs.py": PLAN,
    "orchestrator/train/schedules.py": TRAIN,
    "orchestrator/train/evaluate.py": TRAIN,
    "orchestrator/train/divergence.py": TRAIN,
    "orchestrator/train/sampler.py": (ORCHESTRATOR + "train/test_train_sampler.py",),
    "orchestrator/jobs/packing.py": (ORCHESTRATOR + "jobs/test_scheduler.py",),
    "orchestrator/jobs/judge.py": (ORCHESTRATOR + "jobs/test_reconcile.py",),
    "orchestrator/analysis/analyze.py": ANALYSIS,
    "orchestrator/analysis/comparisons.py": ANALYSIS,
    "orchestrator/analysis/fits.py": ANALYSIS,
    "orchestrator/report/format.py": WORDS,
    "orchestrator/report/bill.py": PLAN[:1],
    "orchestrator/report/comparison_tables.py": WORDS,
    "db/attempts.py": SYNC,
    "db/ingest.py": SYNC,
    "db/results.py": SYNC,
    "db/frames.py": STORE[1:],
    "db/states.py": STORE,
    "db/store.py": STORE,
    "db/lease.py": ("tests/db/test_sync_crashes.py", "-k", "lease or second_sync"),
    "fitting/frame.py": fitting("points", "solver"),
    "fitting/hyper.py": fitting("hyper_laws"),
    "fitting/optimum.py": fitting("optima"),
    "fitting/agreement.py": fitting("optima"),
    "fitting/leaning.py": fitting("optima"),
    "fitting/multiplier.py": fitting("compare_methods"),
    "fitting/difference.py": fitting("compare_methods", "joint"),
    "fitting/compare.py": fitting("compare_methods"),
    "fitting/parameter_multiplier.py": fitting("parameter_multiplier"),
    "fitting/along.py": fitting("speedups"),
    "fitting/cells.py": (*fitting("hyper_laws"), "tests/orchestrator/cli/test_compare_answers.py"),
    "fitting/curve.py": fitting("speedups"),
    "fitting/speedup.py": fitting("speedups"),
    "fitting/joint/answer.py": fitting("joint"),
    "fitting/joint/curve.py": fitting("joint"),
    "fitting/joint/noise.py": fitting("joint"),
    "fitting/joint/runs.py": fitting("joint"),
    "fitting/joint/shift.py": fitting("joint"),
    "fitting/joint/units.py": fitting("joint"),
    "fitting/laws/additive.py": fitting("solver", "known_answers"),
    "fitting/laws/broken.py": fitting("solver", "fit_results"),
    "fitting/laws/kaplan.py": fitting("solver", "fit_results"),
    "fitting/laws/repeated.py": fitting("solver", "known_answers"),
    "fitting/laws/shaped.py": fitting("solver", "fit_results"),
    "fitting/losses.py": fitting("uncertainty", "solver", "fit_results"),
    "fitting/problem.py": fitting("result_fields", "solver", "fit_results"),
    "fitting/solver.py": fitting("solver", "fit_results"),
    "fitting/fit.py": fitting("fit_results", "solver"),
    "fitting/result.py": fitting("fit_results"),
    "fitting/frontier.py": fitting("fit_results"),
    "fitting/bootstrap.py": fitting("result_fields", "fit_results"),
    "fitting/profile.py": fitting("fit_results", "trust"),
    "fitting/profiles.py": fitting("trust", "fit_results"),
    "fitting/intervals.py": fitting("fit_results", "trust"),
    "fitting/uncertainty.py": fitting("uncertainty", "fit_results"),
    "fitting/robust.py": fitting("fit_results", "solver"),
    "fitting/design.py": fitting("trust"),
    "fitting/diagnostics.py": fitting("trust"),
    "fitting/extrapolation.py": fitting("trust"),
    "fitting/specification.py": fitting("trust"),
    "fitting/forecast.py": fitting("trust"),
    "fitting/forecast_laws.py": fitting("forecasts"),
    "fitting/averaging.py": fitting("forecasts"),
    "fitting/at_compute.py": fitting("at_compute"),
    "models/count.py": (MODELS[0], "tests/models/test_counted_flops.py", MODELS[1]),
    "models/inits.py": ("tests/contracts/test_every_init_is_its_rule.py", *MODELS),
    "models/constraints.py": (CONSTRAINTS,),
    "models/gating.py": ("tests/models/test_method_options.py", *MODELS),
    "models/wiring.py": MODELS,
    "models/joins.py": MODELS[2:],
    "models/norms.py": MODELS[2:],
    "models/gates.py": ("tests/models/test_method_options.py", *MODELS[2:]),
    "models/methods/angpt.py": (CONSTRAINTS, *MODELS[1:]),
    "models/methods/ngpt.py": (CONSTRAINTS, *MODELS[1:]),
}

OTHER_OPERATOR: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
OTHER_NAME = {"min": "max", "max": "min", "mean": "median", "any": "all", "all": "any", "sum": "max"}


@dataclass(frozen=True)
class Mutant:
    """One edit of a module: the line, what was changed, and the text of the whole module with it."""

    line: int
    words: str
    text: str
    function: tuple[int, int]  # its first and last line, 0 where it is in none


def mutants_of(text: str) -> list[Mutant]:
    """Return every edit of the tables above that the module's functions allow."""
    tree = ast.parse(text)
    idle = {id(one) for node in ast.walk(tree) for aside in without_number(node) for one in ast.walk(aside)}
    found = []
    for place, node in enumerate(ast.walk(tree)):
        if id(node) in idle:
            continue
        for variant in range(len(list(edits(node)))):
            changed = copy.deepcopy(tree)
            other = list(ast.walk(changed))[place]
            words = list(edits(other))[variant]()
            line = getattr(node, "lineno", 0)
            found.append(Mutant(line, words, ast.unparse(changed), function_at(tree, line)))
    return found


def function_at(tree: ast.Module, line: int) -> tuple[int, int]:
    """Return the first and last line of the innermost function that holds a line, 0 where none does."""
    defs = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    spans = [(min([node.lineno, *(one.lineno for one in node.decorator_list)]), node.end_lineno) for node in defs]
    return max((span for span in spans if span[0] <= line <= span[1]), default=(0, 0))


def edits(node: ast.AST) -> Iterator:
    """Yield what changes `node` in place and names the change."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OTHER_OPERATOR and not is_text(node):
        yield lambda: swap(node, "op")
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER_OPERATOR:
        yield lambda: swap_first(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield lambda: drop(node)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        yield lambda: nudge(node)
    if isinstance(node, ast.Call) and name_of(node.func) in OTHER_NAME:
        yield lambda: rename(node.func)
    if isinstance(node, ast.IfExp):
        yield lambda: flip(node)


def without_number(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of `node` that decide no number: decorators, and whether `zip` checks lengths."""
    yield from getattr(node, "decorator_list", ())
    if isinstance(node, ast.keyword) and node.arg == "strict":
        yield node


def is_text(node: ast.AST) -> bool:
    return any(isinstance(one, ast.JoinedStr) or isinstance(getattr(one, "value", None), str) for one in ast.walk(node))


def swap(node: ast.AST, field: str) -> str:
    before = type(getattr(node, field))
    setattr(node, field, OTHER_OPERATOR[before]())
    return f"{before.__name__} -> {OTHER_OPERATOR[before].__name__}"


def swap_first(node: ast.Compare) -> str:
    before = type(node.ops[0])
    node.ops[0] = OTHER_OPERATOR[before]()
    return f"{before.__name__} -> {OTHER_OPERATOR[before].__name__}"


def drop(node: ast.UnaryOp) -> str:
    words = f"no {type(node.op).__name__}"
    node.op = ast.UAdd() if isinstance(node.op, ast.USub) else ast.Not()
    if isinstance(node.op, ast.Not):
        node.operand = ast.UnaryOp(ast.Not(), node.operand)
    return words


def nudge(node: ast.Constant) -> str:
    before = node.value
    node.value = (
        not before if isinstance(before, bool) else before + 1 if isinstance(before, int) else before * 1.5 or 1.0
    )
    return f"{before} -> {node.value}"


def rename(function: ast.expr) -> str:
    field = "attr" if isinstance(function, ast.Attribute) else "id"
    before = getattr(function, field)
    setattr(function, field, OTHER_NAME[before])
    return f"{before} -> {OTHER_NAME[before]}"


def flip(node: ast.IfExp) -> str:
    node.body, node.orelse = node.orelse, node.body
    return "the other branch"


def name_of(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def copy_tree(place: Path) -> Path:
    """Copy what git would: the mutants live in the copy alone."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in names.stdout.splitlines():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place / name, follow_symlinks=False)
    return place


class Calls:
    """A pytest plugin: which functions of the modules of ROOMS each test calls, by their first lines, and its time.

    What a fixture of a module or session calls counts for the whole file. Other processes are not seen.
    """

    def __init__(self, tree: Path, place: Path) -> None:
        self.modules = {str(tree / "scalewright" / module): module for module in ROOMS}
        self.place, self.now = place, ""
        self.lines: dict[str, dict[str, set[int]]] = {module: {} for module in ROOMS}
        self.seconds: dict[str, float] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        module = self.modules.get(frame.f_code.co_filename)
        if module is not None:
            self.lines[module].setdefault(self.now, set()).add(frame.f_code.co_firstlineno)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator:
        self.now, began = item.nodeid, time.monotonic()
        sys.settrace(self)
        threading.settrace(self)
        told = yield
        sys.settrace(None)
        self.seconds[item.nodeid] = time.monotonic() - began
        return told

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: object, request: pytest.FixtureRequest) -> Iterator:
        if request.scope == "function":
            return (yield)
        before, self.now = self.now, self.now.partition("::")[0]
        told = yield
        self.now = before
        return told

    def pytest_sessionfinish(self) -> None:
        lines = {m: {test: sorted(own) for test, own in called.items()} for m, called in self.lines.items()}
        self.place.write_text(json.dumps({"lines": lines, "seconds": self.seconds}))


@dataclass(frozen=True)
class Row:
    """The tests that judge a module, as they went without a mutant."""

    tests: tuple[str, ...]
    lines: dict[str, dict[str, list[int]]]
    seconds: dict[str, float]

    def tests_of(self, module: str, mutant: Mutant) -> tuple[str, ...]:
        """Return the tests that call the mutant's function, the quickest first; all of the row where none does."""
        first, last = mutant.function
        called = {place for place, own in self.lines[module].items() if any(first <= line <= last for line in own)}
        own = [test for test in self.seconds if test in called or test.partition("::")[0] in called]
        return tuple(sorted(own, key=self.seconds.__getitem__)) or self.tests

    def limit_s(self) -> float:
        return LIMIT_S + 10 * sum(self.seconds.values())


def measure(tree: Path, tests: tuple[str, ...]) -> Row:
    place = tree / "calls.json"
    if is_noticed(tree, tests, None, Calls(tree, place)):
        sys.exit(f"{' '.join(tests)}: they fail without a mutant")
    return Row(tests, **json.loads(place.read_text()))


def is_noticed(tree: Path, tests: tuple[str, ...], limit_s: float | None, *plugins: Calls) -> bool:
    """Run the tests in the copy, in a fork that needs no import of torch again; one that fails, or hangs, notices."""
    child = multiprocessing.get_context("fork").Process(target=run_tests, args=(tree, tests, plugins))
    child.start()
    child.join(limit_s)
    if child.is_alive():
        os.killpg(child.pid, signal.SIGKILL)
        child.join()
    return child.exitcode != 0


def run_tests(tree: Path, tests: tuple[str, ...], plugins: tuple[Calls, ...]) -> None:
    os.setpgrp()
    os.chdir(tree)
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(silence, stream)
    sys.path[:0], os.environ["PYTHONPATH"] = [str(tree)], str(tree)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # two mutants of a second and a size would share one
    sys.dont_write_bytecode = True
    os._exit(pytest.main([*QUIETLY, *tests], plugins=[*plugins]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--per-module", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[""], help="modules whose path holds one of these words")
    asked = parser.parse_args()
    os.nice(10)
    for name in SLOW_IMPORTS:
        importlib.import_module(name)
    score: dict[str, list[int]] = {}
    rows: dict[tuple[str, ...], Row] = {}
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder))
        for module, tests in ROOMS.items():
            if not any(word in module for word in asked.only):
                continue
            began, text = time.monotonic(), (tree / module).read_text()
            if tests not in rows:
                rows[tests] = measure(tree, tests)
            row, chosen = rows[tests], mutants_of(text)
            random.Random(f"{asked.seed} {module}").shuffle(chosen)
            n_killed, tried = 0, chosen[: asked.per_module]
            for one in tried:
                (tree / module).write_text(one.text)
                is_killed = is_noticed(tree, row.tests_of(module, one), row.limit_s())
                n_killed += is_killed
                if not is_killed:
                    print(f"survives: {module}:{one.line}: {one.words}", flush=True)
            (tree / module).write_text(text)
            took = time.monotonic() - began
            print(f"{module}: {n_killed} of {len(tried)} killed; {len(chosen)} mutants, {took:.0f} s", flush=True)
            room = score.setdefault(module.partition("/")[0], [0, 0])
            room[0], room[1] = room[0] + n_killed, room[1] + len(tried)
    for room, (killed, total) in score.items():
        print(f"{room}: {killed} of {total} killed ({killed / total:.0%})")


if __name__ == "__main__":
    main()
