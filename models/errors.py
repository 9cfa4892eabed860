"""The errors that a user of the models room can cause; each message is one line."""


class ModelError(ValueError):
    """Say a model that cannot be built: what, where, what was expected."""
