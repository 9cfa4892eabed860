"""`python -m orchestrator` is the `scalewright` command."""

from orchestrator.cli import main

main()
