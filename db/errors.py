"""The errors that a user of the db room can cause; each message is one line."""


class DbError(ValueError):
    """Say a database that cannot be used as asked: what, where, what was expected."""


class EmptyDatabaseError(DbError):
    """A database without any table: fresh, to be filled by the first plan."""
