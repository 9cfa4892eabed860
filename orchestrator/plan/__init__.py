"""From an experiment to its runs and their bill: what would be trained, what it costs, what is there already."""
