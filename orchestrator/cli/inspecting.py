"""Verbs: see register."""

import typer


def register(app: typer.Typer) -> None:
    """Add this family's verbs to the command."""
