"""The errors that a user of the fitting room can cause; each message is one line."""


class FittingError(ValueError):
    """Say points or laws that cannot be fitted: what, where, what was expected."""


class CurveError(FittingError):
    """Say a loss curve that reaches nothing: too few levels, or it does not fall. Its size can be left out."""
