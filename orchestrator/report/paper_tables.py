"""The table of final losses as files for a paper: LaTeX (booktabs), Markdown, CSV. Knows rows, no analysis."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.files import write_bytes
from scalewright.orchestrator.report.format import listed, number
from scalewright.orchestrator.report.loss_tables import FINAL_NOTE, FinalLoss, nats_words

NAME = "final-losses"
BOLD_NOTE = "Bold: the lowest loss of its size and budget, where the interval of its difference lies below 0."
HEADER = ("Size", "Budget", "Method", "Runs", "Loss", "Perplexity", "Difference")
LATEX_SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "×": r"$\times$",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
}  # fmt: skip


def bold_rows(rows: Sequence[FinalLoss]) -> frozenset[FinalLoss]:
    """Return the lowest loss of each size and budget, where its interval says that it is below the baseline's."""
    lowest = (min(cell, key=lambda row: row.loss_nats) for _, cell in _cells(rows))
    return frozenset(row for row in lowest if row.difference is not None and row.difference.high < 0)


def _cells(rows: Iterable[FinalLoss]) -> Iterable[tuple[tuple[str, str], list[FinalLoss]]]:
    for key, group in groupby(rows, key=lambda row: (row.size, row.budget)):
        yield key, list(group)


def _words_of(row: FinalLoss) -> list[str]:
    difference = "-" if row.difference is None else nats_words(row.difference)
    numbers = [number(row.loss_nats, 4), number(row.perplexity, 4)]
    return [row.size, row.budget, row.name, str(row.n_runs), *numbers, difference]


def notes_of(rows: Sequence[FinalLoss]) -> list[str]:
    """Say what the numbers are; nothing of differences where no method is compared with another."""
    bases = sorted({row.baseline for row in rows if row.baseline is not None})
    if not bases:
        return ["Loss: mean over seeds, nats per token; perplexity: its exponential."]
    return [f"{'Baseline' if len(bases) == 1 else 'Baselines'}: {listed(bases)}.", FINAL_NOTE, BOLD_NOTE]


def latex(rows: Sequence[FinalLoss]) -> str:
    """Write a table of booktabs, one block a size and budget; it wants \\usepackage{booktabs} alone."""
    bold = bold_rows(rows)
    blocks = []
    for _, cell in _cells(rows):
        lines = []
        for row in cell:
            words = [latex_text(word) for word in _words_of(row)]
            words[4:6] = [rf"\textbf{{{word}}}" if row in bold else word for word in words[4:6]]
            lines.append(" & ".join(words) + r" \\")
        blocks.append("\n".join(lines))
    body = "\n\\addlinespace\n".join(blocks)
    head = " & ".join(HEADER) + r" \\"
    caption = latex_text(" ".join(["Final loss and perplexity.", *notes_of(rows)]))
    return (
        "% needs \\usepackage{booktabs}\n\\begin{table}\n\\centering\n"
        f"\\caption{{{caption}}}\n\\label{{tab:{NAME}}}\n"
        f"\\begin{{tabular}}{{lllrrrr}}\n\\toprule\n{head}\n\\midrule\n{body}\n\\bottomrule\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def latex_text(text: str) -> str:
    """Escape what LaTeX would take for a command."""
    return re.sub(r"[\\~^−×&%$#_{}]", lambda found: LATEX_SPECIAL[found.group()], text)


def _markdown(rows: Sequence[FinalLoss]) -> str:
    bold = bold_rows(rows)
    lines = [list(HEADER), ["---"] * 3 + ["---:"] * 4]
    for row in rows:
        words = [word.replace("|", r"\|") for word in _words_of(row)]
        words[4:6] = [f"**{word}**" if row in bold else word for word in words[4:6]]
        lines.append(words)
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n{' '.join(notes_of(rows))}\n"


def comma_separated(rows: Sequence[FinalLoss]) -> str:
    """Write every number as it is, not rounded; what is not known is empty."""
    names = ("size", "budget", "n_params", "n_tokens", "label", "n_runs", "loss_nats", "perplexity")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, "difference_nats", "low", "high", "baseline"])
    for row in rows:
        one = row.difference
        told = ["", "", "", ""] if one is None else [one.nats, one.low, one.high, row.baseline]
        writer.writerow([*(getattr(row, name) for name in names), *told])
    return text.getvalue()


@dataclass(frozen=True)
class PaperFormat:
    suffix: str
    write: Callable[[Sequence[FinalLoss]], str]


FORMATS = {
    "latex": PaperFormat("tex", latex),
    "markdown": PaperFormat("md", _markdown),
    "csv": PaperFormat("csv", comma_separated),
}


def read_formats(text: str) -> tuple[str, ...]:
    """Read `latex,markdown`; raises UserError for a name that is not in FORMATS."""
    names = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in FORMATS]
    if unknown:
        raise UserError(f"--tables: {unknown[0]!r} is no format of a table; expected some of {', '.join(FORMATS)}")
    return names


def paths_of(folder: Path, formats: Iterable[str] = FORMATS) -> tuple[Path, ...]:
    """Return where the tables of a folder are written, one path a format."""
    return tuple(folder / f"{NAME}.{FORMATS[name].suffix}" for name in formats)


def write_tables(rows: Sequence[FinalLoss], folder: Path) -> tuple[Path, ...]:
    """Write the table in every format, each file whole or not at all, and return the paths."""
    paths = paths_of(folder)
    for path, one in zip(paths, FORMATS.values(), strict=True):
        write_bytes(path, one.write(rows).encode(), durable=False)
    return paths
