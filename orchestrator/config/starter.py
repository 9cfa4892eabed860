"""The starter experiments.yaml that `init` writes."""

from importlib import resources
from pathlib import Path

from scalewright.orchestrator.errors import UserError

STARTER_FILE = "experiments.yaml"
DEMO_TEMPLATE = "demo.yaml"  # in a clone a link to the experiments.yaml at the root


def write_demo(path: Path) -> None:
    """Write the demo's grid where no file has that name."""
    template = resources.files("scalewright.orchestrator.config") / "templates" / DEMO_TEMPLATE
    path.write_text(template.read_text(encoding="utf-8"), encoding="utf-8")


def write_starter(folder: Path, *, full: bool = False) -> Path:
    """Write the starter into the folder, making it where needed; raise UserError rather than overwrite a file."""
    path = folder / STARTER_FILE
    templates = resources.files("scalewright.orchestrator.config") / "templates"
    template = templates / ("full.yaml" if full else "starter.yaml")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template.read_text(encoding="utf-8"))
    except FileExistsError:
        raise UserError(f"{path}: exists already; edit it, or give another folder") from None
    return path
