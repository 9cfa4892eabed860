"""Counts of imported points are kept as they were given: 0.1 (billions) stays 0.1.

A whole-number column of SQLite holds a fraction as it is, so there is nothing to change there; PostgreSQL's rounds it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

AMOUNTS = {
    "runs": ("n_params", "n_params_total", "n_tokens_planned", "batch_tokens", "unique_tokens"),
    "results": ("n_tokens", "last_tokens"),
    "evaluations": ("n_tokens",),
}


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        return
    for table, columns in AMOUNTS.items():
        for column in columns:
            op.alter_column(table, column, type_=sa.Double)
