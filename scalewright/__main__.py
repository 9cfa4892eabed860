"""`python -m scalewright` is the `scalewright` command."""

from scalewright.orchestrator.cli import main

main()
