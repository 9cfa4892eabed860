"""Verbs that look into a trained model: inspect, export-checkpoint. No heavy import at the top."""

from pathlib import Path
from typing import Annotated, Any

import typer

from scalewright.orchestrator.report.tables import print_json, print_rows

RUN = Annotated[str, typer.Argument(help="The id of a run (4 or more leading characters).")]
OF = Annotated[str | None, typer.Option("--of", help="The YAML file of the study; by default the one of this folder.")]


def inspect(
    run: RUN,
    of: OF = None,
    gates: Annotated[
        str | None, typer.Option(help="folded or kept while a layer is removed; folded where possible by default.")
    ] = None,
    windows: Annotated[int, typer.Option(help="Validation windows to measure on.", min=1)] = 32,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Ask what each layer of a run does, and what its removal costs. Example: scalewright inspect 3f2a --gates kept"""
    from scalewright.orchestrator.cli.selection import find_study
    from scalewright.orchestrator.train.inspect_run import inspect_run

    found = inspect_run(find_study([of] if of else [])[0], run, gates=gates, n_windows=windows)
    if as_json:
        print_json(found)
        return
    title = f"{found['run_id']}: {found['method']}, gate {found['gate']}, step {found['step']}"
    print_rows(found["layers"], title=title)
    print(
        f"loss {found['loss_nats']:.4f} nats over {found['n_tokens_inspected']:,} validation tokens{part_of(found)}; "
        f"removed with gates: {found['gates_in_removal']}"
    )
    print(f"norm of the stream on one repeated token over that on text: {found['norm_ratio_repeated_to_text']:.3f}")
    for name, error in (found["factor_errors"] or {}).items():
        print(f"factor nu_{name} stands for the mean of 1/|Wx|; the mean measured here is {error:+.2%} from it")


def part_of(found: dict[str, Any]) -> str:
    """Say which part of its validation windows a run was looked at on, where it was not all."""
    seen, of_run = found["n_windows"], found["n_windows_of_run"]
    return "" if seen >= of_run else f" (the first {seen} of {of_run} windows, so not the final loss)"


def export_checkpoint(
    run: RUN,
    of: OF = None,
    to: Annotated[Path | None, typer.Option(help="Folder to write; by default export/RUN in the study.")] = None,
) -> None:
    """Write a run as a stock Llama checkpoint, gates folded. Example: scalewright export-checkpoint 3f2a --to llama"""
    from scalewright.orchestrator.cli.selection import find_study
    from scalewright.orchestrator.train.inspect_run import export_checkpoint as export

    print(export(find_study([of] if of else [])[0], run, to))
