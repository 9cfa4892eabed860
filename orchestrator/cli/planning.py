"""Verbs that plan: init, plan, data prepare, design."""

import typer


def register(app: typer.Typer) -> None:
    """Add this family's verbs to the command."""
    app.command("version")(version)


def version() -> None:
    """Print the version. Example: scalewright version"""
    from importlib.metadata import version as installed

    print(installed("scalewright"))
