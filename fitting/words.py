"""Words of numbers in messages and tables, of every room. No import."""


def counted(n: int, one: str, many: str = "") -> str:
    """Write a number with its noun, plural by `s` unless `many` says how: the only place that does."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
