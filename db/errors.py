"""The errors that a user of the db room can cause; each message is one line."""


class DbError(ValueError):
    """Say a database that cannot be used as asked: what, where, what was expected."""


class CannotWrite(DbError):
    """A database that can be read and not be written: its disk is full, or the place is for reading only."""


class EmptyDatabaseError(DbError):
    """A database without any table: fresh, to be filled by the first plan."""


class UnknownColumnError(DbError):
    """A condition, an order or a choice of columns that names a column that is not there."""
