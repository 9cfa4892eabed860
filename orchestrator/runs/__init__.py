"""What lies on disk of one run: its spec, its journals, who trains it. Knows no job and no database."""
