"""What the database itself refuses: events are only added, never changed or deleted, whoever writes."""

from sqlalchemy import Connection, text

SQLITE = (
    "CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are only added'); END",
    "CREATE TRIGGER events_last BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are only added'); END",
)
POSTGRESQL = (
    "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE EXCEPTION 'events are only added'; END $$",
    "CREATE TRIGGER events_stay BEFORE UPDATE OR DELETE ON events FOR EACH ROW EXECUTE FUNCTION refuse_change()",
)


def create_triggers(connection: Connection) -> None:
    """Make every trigger; they must not exist."""
    for statement in POSTGRESQL if connection.dialect.name == "postgresql" else SQLITE:
        connection.execute(text(statement))
