"""The processes of a run besides the first: they train as they are told, and write nothing.

Usage (rank 0 starts it): python -m scalewright.orchestrator.train.follow RANK SIZE MEETING_FILE
"""

import sys
from pathlib import Path

from scalewright.orchestrator.train.ranks import Ranks, ignore_signals, join


def follow(ranks: Ranks) -> None:
    """Train each run that rank 0 names, from the step it names, until it sends nothing."""
    from scalewright.orchestrator.train.run import train_beside

    ignore_signals()
    while (order := ranks.receive()) is not None:
        run_dir, step = order
        train_beside(Path(run_dir), step, ranks)
    ranks.close()


if __name__ == "__main__":
    follow(join(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
