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
    """Add a column for each further setting that differs within a method, size and budget, named after SETTING.

    Also for what differs between labels of one size and budget, except in the model: that is what a label names.
    """
    import pandas as pd

    from scalewright.db import frames
    from scalewright.fitting.cells import SETTING

    specs = frames.runs(database, experiment, columns=("run_id", "spec"), with_spec=True)
    found = {
        run_id: dict(settings(json.loads(spec))) for run_id, spec in zip(specs["run_id"], specs["spec"], strict=True)
    }
    table = pd.DataFrame.from_dict(found, orient="index").reindex(runs["run_id"])
    table.index = runs.index
    label, *cell = [runs[name].fillna("") for name in ("label", "size", "budget")]
    differs = [
        name
        for name, values in table.items()
        if _differ(values, [label, *cell]) or (not str(name).startswith("model.") and _differ(values, cell))
    ]
    return runs.join(table[differs].rename(columns=lambda name: f"{SETTING}{name.partition('.')[2]}"))


def _differ(values: "pd.Series[Any]", cell: "list[pd.Series[Any]]") -> bool:
    return bool((values.groupby(cell).nunique(dropna=False) > 1).any())


def settings(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (part.name, value as text) of what a spec says beyond ELSEWHERE; of imports, the columns kept for it."""
    if spec.get("source") == "import":
        for name, value in spec["rows"][-1].get("settings", {}).items():
            yield f"import.{name}", value
        return
    for part in ("model", "training", "data"):
        for name, value in _leaves(part, spec.get(part) or {}):
            if name not in ELSEWHERE:
                yield name, json.dumps(value)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}", inner)
    else:
        yield path, value
