"""Ways in which a file goes bad, and a study of which some files do."""

import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 3, 1.5, 1e308, 2**70, "", "many", "\x1b[31mred\x07", [], [1, "x"], {}, {"outcome": "won"},
    {"type": "end", "step": 3, "tokens": 5}, {"pid": "x"}, "0123456789abcdef", "../../etc", "x" * 3000,
)  # fmt: skip

Break = Callable[[Path, random.Random, Sequence[Path]], None]


def truncate(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.choice([0, rng.randrange(len(content) + 1)])])


def zero(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    content = bytearray(path.read_bytes())
    start = rng.choice([0, rng.randrange(len(content) + 1)])
    content[start:] = bytes(len(content) - start)
    path.write_bytes(bytes(content))


def replace_value(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    path.write_text(json.dumps(rng.choice(VALUES)) + rng.choice(["", "\n"]))


def change_types(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    """Put another value under some key of a JSON file, or of some lines of a journal."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    for index in rng.sample(range(len(lines)), min(len(lines), rng.randint(1, 4))):
        try:
            record = json.loads(lines[index])
        except ValueError:
            continue
        change(record, rng)
        lines[index] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n")


def change(record: Any, rng: random.Random) -> None:
    """Change, drop or add one key, here or further in."""
    if not isinstance(record, dict) or not record:
        return
    key = rng.choice(list(record))
    if isinstance(record[key], dict) and record[key] and rng.random() < 0.5:
        change(record[key], rng)
    elif rng.random() < 0.2:
        del record[key]
    elif rng.random() < 0.1:
        record["colour\x1b[2J"] = 1
    else:
        record[key] = rng.choice(VALUES)


def add_rubbish(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    with path.open("ab") as file:
        file.write(rng.choice([rng.randbytes(50), b'{"type":"end","step":3,"tokens":5}\n', b"\xff\xfe\n", b"[]\n"]))


def exchange(path: Path, rng: random.Random, others: Sequence[Path]) -> None:
    """Exchange a file with the one of the same name of another run or pack."""
    alike = [other for other in others if other.name == path.name and other != path and is_file(other)]
    if alike:
        other = rng.choice(alike)
        mine, its = path.read_bytes(), other.read_bytes()
        path.write_bytes(its)
        other.write_bytes(mine)


def overlay(path: Path, rng: random.Random, others: Sequence[Path]) -> None:
    """Lay any other file over this one."""
    path.write_bytes(rng.choice([other for other in others if is_file(other)]).read_bytes())


def delete(path: Path, _: random.Random, __: Sequence[Path]) -> None:
    path.unlink()


def close_up(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    path.chmod(rng.choice([0o000, 0o200, 0o400]))


def close_folder(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    path.parent.chmod(rng.choice([0o000, 0o400, 0o500]))


def put_folder(path: Path, _: random.Random, __: Sequence[Path]) -> None:
    path.unlink()
    path.mkdir()


def put_pipe(path: Path, _: random.Random, __: Sequence[Path]) -> None:
    path.unlink()
    os.mkfifo(path)


def put_link(path: Path, rng: random.Random, _: Sequence[Path]) -> None:
    path.unlink()
    path.symlink_to(rng.choice(["nowhere", path.name, "/dev/zero"]))


def delete_folder(path: Path, _: random.Random, __: Sequence[Path]) -> None:
    shutil.rmtree(path.parent)


BREAKS: tuple[Break, ...] = (
    *(truncate, zero, replace_value, change_types, change_types, add_rubbish, exchange, exchange, overlay, delete),
    *(close_up, close_folder, put_folder, put_pipe, put_link, delete_folder),
)
REACHES_OTHERS = {exchange}


def breakable(root: Path) -> list[Path]:
    """Name the small files and journals that jobs and submissions left; each may also be one that is not there yet."""
    found = [path for path in root.glob("runs/*/*") if is_file(path)]
    found += [path for path in root.glob("jobs/**/*") if path.suffix == ".json" and is_file(path)]
    return sorted(found)


def is_file(path: Path) -> bool:
    """Tell what Path.is_file tells; in a closed folder there is none."""
    with suppress(PermissionError):
        return path.is_file()
    return False


def is_folder(path: Path) -> bool:
    with suppress(PermissionError):
        return path.is_dir()
    return False


NOT_THERE_YET = ("again.json", "stop", "DONE.json", "journal.a2.jsonl", "ckpt")


def corrupt(root: Path, rng: random.Random) -> tuple[list[str], set[Path]]:
    """Break one to four files; return what was done, and the files that may be other than before."""
    said, touched = [], set[Path]()
    for _ in range(rng.randint(1, 4)):
        files = breakable(root)
        if rng.random() < 0.1:
            folder = rng.choice(sorted({path.parent for path in files if path.parent.parent.name == "runs"}))
            path, way = folder / rng.choice(NOT_THERE_YET), replace_value
            if os.path.lexists(path):
                continue
        else:
            path, way = rng.choice(files), rng.choice(BREAKS)
        try:
            way(path, rng, files)
        except OSError:  # closed by the break before
            continue
        alike = {other for other in files if other.name == path.name} if way in REACHES_OTHERS else set()
        touched |= {path, *alike}
        said.append(f"{way.__name__} {path.relative_to(root)}")
    return said, touched


def open_up(path: Path) -> None:
    """Give back the permissions that were taken."""
    for folder in [path, *path.rglob("*")] if path.is_dir() else []:
        if not folder.is_symlink():
            folder.chmod(0o700 if folder.is_dir() else 0o600)
            if folder.is_dir() and folder is not path:
                open_up(folder)
