"""What runs of an experiment were trained with beyond the columns of their final losses, read from their specs."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from scalewright.db.engine import Database

ELSEWHERE = frozenset(  # what a column of its own has, or what makes a run another size, budget or seed
    {
        "training.n_tokens",
        "training.seed",
        "training.precision",
        "training.batch_sequences",
        "training.optimizer.lr_peak",
    }
)


def with_settings(database: "Database", experiment: str, runs: "pd.DataFrame") -> "pd.DataFrame":
    """Add a column for each further setting that differs within a method, size and budget, named after SETTING."""
    import pandas as pd

    from scalewright.db import frames
    from scalewright.fitting.cells import SETTING

    specs = frames.runs(database, experiment, columns=("run_id", "spec"), with_spec=True)
    found = {
        run_id: dict(settings(json.loads(spec))) for run_id, spec in zip(specs["run_id"], specs["spec"], strict=True)
    }
    table = pd.DataFrame.from_dict(found, orient="index").reindex(runs["run_id"])
    table.index = runs.index
    cell = [runs[name].fillna("") for name in ("label", "size", "budget")]
    differs = [name for name in table if (table[name].groupby(cell).nunique(dropna=False) > 1).any()]
    return runs.join(table[differs].rename(columns=lambda name: f"{SETTING}{name}"))


def settings(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (name, value as text) of what a spec says beyond ELSEWHERE; of imported points, the columns kept for it."""
    if spec.get("source") == "import":
        yield from spec["rows"][-1].get("settings", {}).items()
        return
    for part in ("model", "training", "data"):
        for name, value in _leaves(part, spec.get(part) or {}):
            if name not in ELSEWHERE:
                yield name.partition(".")[2], json.dumps(value)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}", inner)
    else:
        yield path, value
