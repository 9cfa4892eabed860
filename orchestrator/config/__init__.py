"""The experiments file: YAML text to a checked Experiment. Knows no database and no cluster."""
