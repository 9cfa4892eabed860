"""Figures as files: formats and widths, and a stamp in each that tells whether the database still gives it."""

import json
import re
import shutil
import sqlite3
from pathlib import Path

import pytest
from PIL import Image
from planted_study import plant, write_results

from scalewright.fitting.figures.gallery import FIGURES
from scalewright.orchestrator.analysis.inputs import read_inputs
from scalewright.orchestrator.cli import run
from scalewright.orchestrator.plan.make import plan_file
from scalewright.orchestrator.study import Study
from scalewright.orchestrator.sync.sync import sync


@pytest.fixture(scope="module")
def synced(tmp_path_factory):
    folder = plant(tmp_path_factory.mktemp("synced") / "planted", n_left=1).parent
    sync(Study.at(folder))
    return folder


@pytest.fixture
def study(synced, tmp_path, monkeypatch):
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)
    folder = shutil.copytree(synced, tmp_path / "planted")
    monkeypatch.chdir(folder)
    return folder


def say(capsys, *words):
    code = run([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def states(capsys):
    code, out, err = say(capsys, "figures", "--check", "--json")
    rows = json.loads(out)
    return code, {row["figure"] for row in rows if row["state"] == "stale"}, err


def change(folder, statement):
    with sqlite3.connect(folder / "runs.sqlite") as database:
        assert database.execute(statement).rowcount > 0


CHANGES = {
    "an evaluation on the way": ("UPDATE evaluations SET loss_nats = loss_nats + 0.1 WHERE final = 0",
                                 {"training-curves"}),
    "what layers did": ("UPDATE layer_metrics SET value = value * 2", {"layers"}),
    "how long a waiting run is": ("UPDATE runs SET n_tokens_planned = n_tokens_planned * 3 WHERE state = 'planned'",
                                  {"forecast"}),
}  # fmt: skip


def pictures(folder):
    return {path.stem: path.read_bytes() for path in (folder / "figures" / "planted").glob("*.png")}


def test_a_changed_database_says_which_figures_are_stale_and_just_these_look_otherwise(study, capsys):
    assert say(capsys, "figures")[0] == 0
    assert states(capsys) == (0, set(), "")
    for what, (statement, expected) in CHANGES.items():
        before = pictures(study)
        change(study, statement)
        code, stale, words = states(capsys)
        assert (code, stale) == (3, expected), what
        told = f"not what the database gives now: {', '.join(expected)}; redraw: scalewright figures"
        assert words == f"scalewright: {told}\n"
        assert say(capsys, "figures")[0] == 0
        pixels = {name for name, file in pictures(study).items() if unstamped(file) != unstamped(before[name])}
        assert pixels == expected, what
    assert states(capsys)[:2] == (0, set())


def unstamped(file):
    """A PNG but for its stamp and the checksum of that chunk."""
    return re.sub(rb"inputs=[0-9a-f]{64}.{4}", b"", file, flags=re.DOTALL)


def test_a_run_that_ends_makes_every_figure_of_final_losses_stale(study, capsys):
    assert say(capsys, "figures")[0] == 0
    plan, of = plan_file(study / "experiments.yaml")
    write_results(of.run_dir(plan.runs[-1].run_id), plan.runs[-1], 1.0)
    code, stale, _ = states(capsys)
    drawn = {"speed-ups", "loss-against-tokens", "loss-against-compute", "forecast", "layers", "training-curves"}
    assert code == 3 and stale >= drawn and "ablation" not in stale


def test_every_figure_of_the_page_reads_parts_that_are_there(study):
    inputs = read_inputs(Study.at(study), "planted")
    for name, entry in FIGURES.items():
        assert set(entry.reads) <= set(inputs.hashes), name


def test_formats_and_widths_of_the_figures_that_are_named(study, capsys):
    asked = ("figures", "planted", "loss-against-compute", "--format", "pdf,png,svg", "--width", "column")
    code, out, _ = say(capsys, *asked)
    assert code == 0
    paths = [Path(line) for line in out.splitlines()]
    assert [path.name for path in paths] == [f"loss-against-compute-column.{kind}" for kind in ("pdf", "png", "svg")]
    assert sorted(path.name for path in (study / "figures" / "planted").iterdir()) == sorted(p.name for p in paths)
    pdf, png, svg = (path.read_bytes() for path in paths)
    assert pdf.startswith(b"%PDF") and b"<svg" in svg
    with Image.open(paths[1]) as image:
        assert image.width == round(4.4 * 300) and image.text["Description"].startswith(
            "scalewright figure=loss-against"
        )
    rows = json.loads(say(capsys, "figures", "--check", "--json")[1])
    assert [(row["file"], row["state"]) for row in rows] == [(path.name, "current") for path in paths]
    assert say(capsys, *asked)[0] == 0 and [path.read_bytes() for path in paths] == [pdf, png, svg]


@pytest.mark.parametrize(
    "words,told",
    [
        (["--format", "gif"], "--format: 'gif' is no format of a figure; expected some of png, svg, pdf"),
        (["--width", "wide"], "--width: 'wide' is no width of a figure; expected one of page, column, slide"),
        (["planted", "loss"], "no figure 'loss' of planted; these can be drawn: speed-ups, "),
        (["--check"], "no figure there says what it was drawn from; draw them: scalewright figures"),
        (["planted", "layers", "--check"], "no file of figure 'layers' that says what it was drawn from"),
    ],
)
def test_what_cannot_be_drawn_or_checked_is_one_line(study, capsys, words, told):
    code, out, err = say(capsys, "figures", *words)
    assert (code, out) == (1, "") and told in err and err.count("\n") == 1
