"""Tables on a terminal: no word is broken, nothing is lost, wide ones go below each other."""

import subprocess
import sys

import pytest

from scalewright.orchestrator.report.tables import cell, print_table, wrapped

ROW = {
    "run": "3f2a9c1b7d0e4f55",
    "label": "angpt (alpha_init=0.05, schedule.warmup=10%)",
    "size": "141k",
    "budget": "0.62M",
    "n_params": 141_952,
    "loss": 2.0512345,
    "tokens/s": 161_600.0,
    "why": "no sign of life for 6 min 2 s; the job may have lost its node and nobody has said so yet, see the logs",
}


def shown(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    print_table([ROW, ROW | {"label": "方法", "why": "", "loss": None}])
    return capsys.readouterr().out.splitlines()


def test_a_narrow_terminal_breaks_no_word_and_loses_no_cell(capsys, monkeypatch):
    lines = shown(capsys, monkeypatch, "80")
    text = "\n".join(lines)
    for value in (ROW["run"], ROW["label"], "141,952", "2.051", "162k", *ROW["why"].split()):
        assert value in text
    assert max(map(len, lines)) <= 80
    assert text.count(ROW["run"]) >= 4  # the first column is there in every block


IDENTIFIER = "gated_attention/head-wise.sigmoid_after_sdpa/lr=0.001,warmup=10%/variant_12"
PLAIN = "abcdefghijklmnopqrstuvwxyz" * 3


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_name_without_spaces_keeps_within_the_columns(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table([{"label": IDENTIFIER, "why": IDENTIFIER, "loss": 2.05}, {"label": PLAIN, "why": "-", "loss": 2.06}])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    firsts = [line.split("  ")[0] for line in lines]
    assert IDENTIFIER in "".join(firsts)  # broken after separators, and nothing of it lost
    (short,) = {line for line in firsts if "…" in line}
    start, end = short.split("…")
    assert PLAIN.startswith(start) and PLAIN.endswith(end) and len(start) > 10 and len(end) > 10


def test_a_long_text_keeps_its_spaces_where_a_long_word_has_none():
    assert wrapped("lr of a_long_identifier here", 12) == ["lr of a_", "long_", "identifier", "here"]


def test_tables_that_go_to_a_file_are_cut_to_no_width(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    rows = [{f"column {n}": "x" * 20 for n in range(12)}]
    print_table(rows)
    assert max(map(len, capsys.readouterr().out.splitlines())) == 12 * 20 + 11 * 2


def test_a_wide_terminal_has_one_block(capsys, monkeypatch):
    assert sum(line.startswith("run ") for line in shown(capsys, monkeypatch, "300")) == 1


def test_numbers_are_written_as_people_write_them():
    assert [cell(v) for v in (161_600.0, 27_008, 999_600_000, 2.0512345, 1e-5, None, float("nan"), True)] == [
        "162k", "27,008", "1B", "2.051", "1e-05", "-", "-", "yes",
    ]  # fmt: skip


def test_a_terminal_that_is_not_utf8_gets_every_letter_in_another_spelling():
    program = (
        "import sys; from scalewright.orchestrator import cli; cli.write_what_the_terminal_can();"
        "print('− 3 × 方法 ─'); print('γ', file=sys.stderr)"
    )
    for encoding in ("ascii", "latin-1"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**__import__("os").environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
            capture_output=True,
            check=True,
        )
        assert done.stdout.decode("latin-1").replace("\xd7", "x") == "- 3 x \\u65b9\\u6cd5 -\n"
        assert done.stderr == b"gamma\n"
