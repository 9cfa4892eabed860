"""How many different tokens a run sees, so that laws of repeated data can be fitted."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

COMMENT = "different training tokens planned; below n_tokens_planned where data repeat"


def upgrade() -> None:
    op.add_column("runs", sa.Column("unique_tokens", sa.BigInteger, nullable=True, comment=COMMENT))
