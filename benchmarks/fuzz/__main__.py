"""What a broken file costs: a finished and a running study, corrupted at random, and every verb asked about it.

    python benchmarks/fuzz [--rounds 500] [--seed 0] [--only ROUND]

Each round restores a study of eight runs that train nothing, breaks one to four of the files that jobs and submissions
left (truncated, zeroed, of wrong types, exchanged between runs, deleted, closed to the reader, replaced by a folder, a
pipe or a link to nowhere), and checks: no traceback and no control character on the terminal; every verb answers; the
runs whose files are sound keep state and result, and none of them is started again; `db rebuild` of a database that had
seen the sound files, and `sync` of one that had not, hold the same (but for the end of a run whose DONE.json is broken:
the one that saw it keeps it). Even rounds are of the finished study. Prints one
JSON object; exit code 1 where a check failed. Permissions do not bind root: run it as somebody else,
or with: setpriv --bounding-set -dac_override,-dac_read_search python benchmarks/fuzz
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.checks import fuzz  # noqa: E402


def permissions_bind(folder: Path) -> bool:
    """Tell whether a closed file is closed to this process; to root it is not."""
    path = folder / "closed"
    path.touch(0o000)
    try:
        path.read_bytes()
    except PermissionError:
        return True
    finally:
        path.unlink()
    return False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--only", type=int, help="play one round")
    given = parser.parse_args()
    os.environ.pop("SCALEWRIGHT_DB", None)
    began = time.perf_counter()
    seeds = [given.only] if given.only is not None else range(given.seed, given.seed + given.rounds)
    with tempfile.TemporaryDirectory() as folder:
        bound = permissions_bind(Path(folder))
        tally = fuzz(Path(folder).resolve(), seeds)
    numbers = {"rounds": tally.rounds, "wall_s": round(time.perf_counter() - began, 1), "permissions_bind": bound}
    asked = {"verbs": dict(tally.verbs), "codes": dict(tally.codes), "breaks": dict(tally.breaks)}
    print(json.dumps(numbers | asked | {"slowest_s": round(tally.slowest_s, 2), "faults": tally.faults}, indent=1))
    sys.exit(bool(tally.faults))


if __name__ == "__main__":
    main()
