"""The errors that a user can cause, by exit code; each message is one line."""


class UserError(ValueError):
    """A mistake in the YAML, the command line or the data: what, where, what was expected. Exit code 1."""


class Partial(RuntimeError):
    """Something was done and something was not; nothing is lost. Exit code 3."""
