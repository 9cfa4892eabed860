"""Where Alembic applies migrations: on the connection that scalewright.db.upgrade holds, within its transaction."""

from alembic import context

from scalewright.db.schema import METADATA

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=METADATA,
    version_table="schema_version",
    render_as_batch=connection.dialect.name == "sqlite",
    transactional_ddl=False,
)
context.run_migrations()
