"""`python -m orchestrator` is the `scalewright` command."""

from scalewright.orchestrator.cli import main

main()
