"""Numbers only: frames into fits and comparisons. Knows no word of the report."""
