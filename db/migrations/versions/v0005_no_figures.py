"""Drop the tables of figures: nothing read them, and a picture's file itself says what it was drawn from."""

from alembic import op
from sqlalchemy import Double, Text

from scalewright.db.columns import may, must, refers

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.drop_table("figure_inputs")
    op.drop_table("figures")


def downgrade() -> None:
    op.create_table(
        "figures",
        must("figure_id", Text, "first 12 hex digits of the SHA-256 of name, experiment and inputs", primary=True),
        must("name", Text, "name of the figure"),
        may("experiment", Text, "name of the experiment"),
        must("path", Text, "file that was written"),
        may("content_hash", Text, "SHA-256 of the file, hex"),
        must("created_at", Double, "s since 1970, UTC"),
        comment="figures as drawn last",
    )
    op.create_table(
        "figure_inputs",
        refers("figure_id", Text, "figures.figure_id", "the figure", primary=True),
        must("kind", Text, "frame, fit or run", primary=True),
        must("reference", Text, "what it was drawn from", primary=True),
        comment="what a figure was drawn from",
    )
