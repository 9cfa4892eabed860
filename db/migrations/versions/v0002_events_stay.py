"""Let the database itself refuse to change or delete events, which are the record of what happened to each run."""

from alembic import op

from scalewright.db.triggers import create_triggers

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    create_triggers(op.get_bind())
