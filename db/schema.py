"""Every table of the runs database, gathered. Knows SQLAlchemy only.

What is planned (table runs) and what was measured (table results and others) are separate columns. NULL means not
measured; in `metrics` and `layer_metrics`, whose rows exist only where something was logged, it means NaN.
Times are seconds since 1970, UTC. JSON is text, so that one code path serves SQLite and PostgreSQL.
"""

from pathlib import Path

from scalewright.db.columns import METADATA
from scalewright.db.tables_kept import (
    events,
    fit_runs,
    fits,
    leases,
    notes,
    schema_version,
    tags,
)
from scalewright.db.tables_measured import (
    attempts,
    checkpoints,
    codes,
    environments,
    evaluations,
    ingest_errors,
    ingested_files,
    layer_metrics,
    metric_keys,
    metrics,
    results,
)
from scalewright.db.tables_planned import experiment_revisions, experiment_runs, experiments, jobs, runs, submissions

# the number of the newest migration, so that a new one is one file
SCHEMA_VERSION = max(path.name[1:5] for path in (Path(__file__).parent / "migrations" / "versions").glob("v*.py"))

__all__ = [
    "METADATA",
    "SCHEMA_VERSION",
    "attempts",
    "checkpoints",
    "codes",
    "environments",
    "evaluations",
    "events",
    "experiment_revisions",
    "experiment_runs",
    "experiments",
    "fit_runs",
    "fits",
    "ingest_errors",
    "ingested_files",
    "jobs",
    "layer_metrics",
    "leases",
    "metric_keys",
    "metrics",
    "notes",
    "results",
    "runs",
    "schema_version",
    "submissions",
    "tags",
]
