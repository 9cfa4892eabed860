"""make mutants: plant small errors in the numeric modules, one at a time, and count those that a test notices.

    python tests/mutants.py [--per-module N] [--seed S] [--only WORD]

Works on a copy of the tree. Each module is judged by the tests of its row in ROOMS; the sample is drawn by the seed.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 300
CONTRACT = "tests/contracts/test_yaml_to_log.py"
GRID = ("tests/orchestrator/plan/test_grid.py",)
PLAN = ("tests/orchestrator/plan/test_plan.py", "tests/orchestrator/config/test_recipes.py", CONTRACT)
TRAIN = ("tests/orchestrator/train/test_train_schedules.py", "tests/orchestrator/train/test_train_run.py", CONTRACT)
SYNC = ("tests/db/test_sync_rules.py", "tests/db/test_sync_order.py", "tests/db/test_frames.py", "-k", "not postgresql")
# module -> the tests that must notice
ROOMS: dict[str, tuple[str, ...]] = {
    "orchestrator/config/rates.py": ("tests/orchestrator/config/test_learning_rate.py", *PLAN[:1]),
    "orchestrator/plan/expand.py": (*GRID, *PLAN[:1]),
    "orchestrator/plan/training.py": PLAN,
    "orchestrator/plan/bill.py": PLAN,
    "orchestrator/train/schedules.py": TRAIN,
    "orchestrator/train/evaluate.py": TRAIN,
    "orchestrator/train/divergence.py": TRAIN,
    "orchestrator/jobs/packing.py": ("tests/orchestrator/jobs/test_scheduler.py",),
    "orchestrator/jobs/judge.py": ("tests/orchestrator/jobs/test_reconcile.py",),
    "db/attempts.py": SYNC,
    "db/ingest.py": SYNC,
    "db/results.py": SYNC,
    "fitting/frame.py": ("tests/fitting/test_points.py",),
    "fitting/hyper.py": ("tests/fitting/test_hyper_laws.py",),
    "fitting/optimum.py": ("tests/fitting/test_optima.py",),
    "fitting/multiplier.py": ("tests/fitting/test_compare_methods.py",),
    "fitting/difference.py": ("tests/fitting/test_compare_methods.py",),
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


def mutants_of(text: str) -> list[Mutant]:
    """Return every edit of the tables above that the module's functions allow."""
    tree = ast.parse(text)
    found = []
    for place, node in enumerate(ast.walk(tree)):
        for variant in range(len(list(edits(node)))):
            changed = copy.deepcopy(tree)
            other = list(ast.walk(changed))[place]
            words = list(edits(other))[variant]()
            found.append(Mutant(getattr(node, "lineno", 0), words, ast.unparse(changed)))
    return found


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


def is_noticed(tree: Path, tests: tuple[str, ...]) -> bool:
    """Run the tests in the copy; one that fails, or hangs, has noticed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=LIMIT_S).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--per-module", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    os.nice(10)
    score: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder))
        for module, tests in ROOMS.items():
            if asked.only not in module:
                continue
            text = (ROOT / module).read_text()
            chosen = mutants_of(text)
            random.Random(f"{asked.seed} {module}").shuffle(chosen)
            if is_noticed(tree, tests):
                sys.exit(f"{module}: its tests fail without a mutant")
            for one in chosen[: asked.per_module]:
                (tree / module).write_text(one.text)
                noticed = is_noticed(tree, tests)
                killed = score.setdefault(module.partition("/")[0], [0, 0])
                killed[0], killed[1] = killed[0] + noticed, killed[1] + 1
                if not noticed:
                    print(f"survives: {module}:{one.line}: {one.words}", flush=True)
            (tree / module).write_text(text)
    for room, (killed, total) in score.items():
        print(f"{room}: {killed} of {total} killed ({killed / total:.0%})")


if __name__ == "__main__":
    main()
