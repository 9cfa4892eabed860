"""Pages of grids that are not the demo's: ablations, isoFLOP curves, two runs, diverged runs, many methods."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scalewright.fitting.figures.entry import FigureEntry
from scalewright.fitting.figures.gallery import FIGURES
from scalewright.orchestrator.analysis.analyze import COMPUTE_LAW, analyze_frame
from scalewright.orchestrator.report.figures import READERS, compute_bands, compute_picture
from scalewright.orchestrator.report.html import Report, Table
from scalewright.orchestrator.report.law_tables import laws_table
from scalewright.orchestrator.report.page import build_report, headline_lines, headline_tables

LONG = "gated attention with a head-wise sigmoid after SDPA, variant"
ADVANTAGE = 1.4  # of compute: the method's loss at C is the baseline's at 1.4 C


def tables_of(report: Report) -> list[Table]:
    return [table for section in report.sections for table in section.tables]


def runs_of(rows: list[dict]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    empty = dict.fromkeys(("lr_peak", "batch_tokens", "tokens_per_s", "bits_per_byte", "device", "threads"), math.nan)
    empty |= {"size": None, "budget": None}
    named = {"method": "imported", "gate": "none", "state": "completed", "diverged": False, "annealed": True, "seed": 0}
    ids = [f"run{n:05d}" for n in range(len(frame))]
    new = {name: value for name, value in (empty | named).items() if name not in frame}
    return frame.assign(run_id=ids, **new)


def loss_at(n_params: float, n_tokens: float) -> float:
    return float(1.7 + 400 * n_params**-0.34 + 400 * n_tokens**-0.33)


def ablation(shifts: dict[str, float]) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    common = {"size": "100M", "budget": "20x", "n_params": 1e8, "n_tokens": 2e9, "flops": 1.2e18}
    return runs_of([
        {**common, "label": label, "seed": seed, "loss_nats": 2.7 + shift + 0.002 * rng.normal()}
        for label, shift in shifts.items() for seed in range(3)
    ])  # fmt: skip


def isoflop(jitter: float = 0.0) -> pd.DataFrame:
    rows = []
    rng = np.random.default_rng(1)
    for label, gain in (("baseline", 1.0), ("ours", ADVANTAGE)):
        for flops in (1e18, 5e18, 2.5e19, 1.25e20):
            best = math.sqrt(flops / 6 / 20)
            for step in np.linspace(-1.5, 1.5, 7):
                n = best * math.exp(step)
                share = math.sqrt(gain)
                bought = flops * (1 + jitter * rng.uniform(-1, 1))
                rows.append({"label": label, "n_params": n, "n_tokens": bought / 6 / n, "flops": bought,
                             "loss_nats": loss_at(share * n, share * flops / 6 / n)})  # fmt: skip
    return runs_of(rows)


def ladder(methods: tuple[str, ...] = ("gpt+", "angpt")) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    return runs_of([
        {"label": label, "method": label, "size": f"{n:.0e}", "budget": f"{d:.0e}", "n_params": n, "n_tokens": d,
         "flops": 6 * n * d, "loss_nats": loss_at(n, d * (1 + 0.2 * i)) * math.exp(0.003 * rng.normal())}
        for i, label in enumerate(methods) for n in (1e7, 3e7, 1e8, 3e8) for d in (2e8, 8e8, 3.2e9)
    ])  # fmt: skip


@pytest.fixture(scope="module")
def iso():
    return analyze_frame(isoflop(), "iso")


def test_the_page_of_an_ablation_answers_first_and_says_nothing_of_laws():
    shifts = {f"{LONG} {n}": shift for n, shift in enumerate((0.0, -0.05, 0.0, 0.04, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))}
    report = build_report(analyze_frame(ablation(shifts), "variants"))
    assert [section.name for section in report.sections] == ["ablation", "runs"]
    assert f"{LONG} 1 ends lowest: −0.05" in report.lead[0] and f"from {LONG} 0" in report.lead[0]
    assert f"{LONG} 3 ends above it" in report.lead[1]
    assert [picture.name for picture in report.sections[0].pictures] == ["ablation"]
    (table,) = report.sections[0].tables
    assert len(table.rows) == 10 and "size 100M, budget 20x" in table.title
    assert table.rows[1]["difference"].startswith("−0.05") and table.rows[0]["difference"] == "-"
    assert float(table.rows[0]["perplexity"]) == pytest.approx(math.exp(2.7), rel=0.01)
    assert "not fitted" not in " ".join(map(str, [*report.lead, *report.warnings, *tables_of(report)]))


def test_a_base_that_calls_itself_so_is_the_base_of_an_ablation():
    report = build_report(analyze_frame(ablation({"a": -0.05, "baseline": 0.0, "c": 0.0}), "variants"))
    assert "from baseline" in report.lead[0]


def test_a_reason_is_said_once_for_all_methods_and_a_table_of_nothing_is_not_shown():
    analysis = analyze_frame(ablation({f"{LONG} {n}": 0.0 for n in range(10)}), "variants")
    table = laws_table(analysis)
    assert table.rows == () and len(table.notes) == 3
    assert all(LONG not in note for note in table.notes)
    two = build_report(analyze_frame(ladder()[:1].pipe(lambda f: pd.concat([f, f.assign(label="x", run_id="x")])), "d"))
    assert all(table.rows or table.notes for table in tables_of(two))
    assert [section.name for section in two.sections if section.is_empty] == []


def test_an_isoflop_grid_leads_with_the_multiplier_of_compute(iso):
    report = build_report(iso)
    (multiplier,) = [m for m in iso.comparisons[0].comparison.multipliers if m.kind == "compute"]
    assert multiplier.low < ADVANTAGE < multiplier.high
    assert report.lead[0].startswith("ours over baseline: baseline needs 1.40× [")
    assert report.sections[0].tables[0].title == "Equal-loss multipliers"
    assert headline_tables(iso)[0].title == "Equal-loss multipliers"
    assert headline_lines(iso)[0] == report.lead[0]


def test_an_isoflop_grid_has_its_multiplier_one_panel_of_curves_a_method_and_no_panel_a_size(iso):
    answers = [section for section in build_report(iso).sections if section.name in ("speed-ups", "laws")]
    names = [picture.name for section in answers for picture in section.pictures]
    profiles = [f"isoflop-profiles-{label}" for label in ("baseline", "ours")]
    assert names == ["speed-ups", "loss-against-compute", *profiles, "contours-baseline", "contours-ours"]


@pytest.mark.parametrize("jitter", [1e-12, 0.03])
def test_computes_that_differ_by_rounding_or_three_percent_are_one_level_of_the_frontier(jitter):
    analysis = analyze_frame(isoflop(jitter), "iso")
    assert analysis.points.frame.groupby("label")["on_frontier"].sum().tolist() == [4, 4]
    result = analysis.fit(COMPUTE_LAW, "baseline").result
    assert result is not None and result.n == 4
    lowest = analysis.minima[analysis.minima["label"] == "baseline"]["loss_nats"].to_numpy()
    wanted = [min(loss_at(n, f / 6 / n) for n in np.geomspace(1e7, 1e10, 3000)) for f in (1e18, 5e18, 2.5e19, 1.25e20)]
    np.testing.assert_allclose(lowest, wanted, rtol=3e-3)
    assert set(result.provenance.run_ids) == set(analysis.points.of("baseline").frame["run_id"])


def test_a_line_ends_where_the_runs_it_is_fitted_to_end_and_they_lie_in_its_band():
    runs = ladder()
    dearest = runs[runs["label"] == "angpt"]["flops"].idxmax()
    runs.loc[dearest, "loss_nats"] = 9.0  # the dearest run of a method is not on its frontier
    analysis = analyze_frame(runs, "grid")
    bands = compute_bands(analysis)
    for label in ("gpt+", "angpt"):
        own = analysis.points.of(label).frame
        fitted = own[own["on_frontier"]].sort_values("flops")
        band = bands[label]
        assert (band.x[0], band.x[-1]) == pytest.approx((fitted["flops"].iloc[0], fitted["flops"].iloc[-1]))
        low, high = (np.interp(fitted["flops"], band.x, end) for end in (band.low, band.high))
        assert ((fitted["loss_nats"] > low) & (fitted["loss_nats"] < high)).all()
    assert bands["angpt"].x[-1] < runs.loc[dearest, "flops"] * 0.99


def test_a_law_of_few_runs_misses_none_of_them_more_than_least_squares_does():
    """Huber's objective at a width of .001 runs through some of five points and past the rest."""
    analysis = analyze_frame(ladder(), "grid")
    result = analysis.fit(COMPUTE_LAW, "gpt+").result
    own = analysis.points.of("gpt+").frame
    own = own[own["on_frontier"]]
    slope, centre = np.polyfit(np.log(own["flops"]), np.log(own["loss_nats"]), 1)
    assert result.params["alpha"].value == pytest.approx(-slope, rel=1e-4)


def test_a_wide_ladder_has_curves_with_a_floor_that_pass_through_its_runs():
    """A power law without a floor is straight: over four decades it lies below both ends and above the middle."""
    rows = [
        {"label": label, "n_params": n, "n_tokens": 20 * n, "flops": 120 * n * n,
         "loss_nats": 1.7 + gain * 60 * (120 * n * n) ** -0.1 * math.exp(0.001 * (-1) ** i)}
        for label, gain in (("baseline", 1.0), ("ours", 0.95)) for i, n in enumerate(np.geomspace(1e7, 1e9, 9))
    ]  # fmt: skip
    analysis = analyze_frame(runs_of(rows), "wide")
    bands = compute_bands(analysis)
    assert bands["ours"].words.startswith("ours: E = 1.7")
    own = analysis.points.of("ours").frame.sort_values("flops")
    np.testing.assert_allclose(
        np.interp(own["flops"], bands["ours"].x, bands["ours"].middle), own["loss_nats"], rtol=4e-3
    )
    (picture,) = compute_picture(analysis)
    assert "Lines: L = E + K·C^−γ" in picture.caption
    few = analyze_frame(ladder().query("n_params == 1e8"), "one size")  # three runs bound no floor
    assert compute_bands(few)["gpt+"].words.startswith("GPT+: γ ")
    assert "Lines: L = K·C^−γ" in compute_picture(few)[0].caption


def test_the_tolerance_of_the_frontier_is_stated():
    notes = " ".join(laws_table(analyze_frame(ladder(), "grid")).notes)
    assert "runs within 10% of one another" in notes


def test_why_a_multiplier_and_a_speed_up_of_one_unit_differ_is_said_beside_them():
    report = build_report(analyze_frame(ladder(), "grid"))
    (table,) = [one for one in tables_of(report) if one.title == "Equal-loss multipliers"]
    assert any(row["of"] == "compute" for row in table.rows)
    assert any("each method at its best size" in note for note in table.notes)


def test_two_runs_and_a_diverged_one_have_a_page(tmp_path: Path):
    runs = ladder()
    two = runs[(runs["n_params"] == 1e8) & (runs["n_tokens"] == 8e8)]
    report = build_report(analyze_frame(two, "two"))
    assert "(one pair: no interval)" in report.lead[0]
    gone = runs.assign(diverged=runs.index == 3, state=np.where(runs.index == 3, "diverged", "completed"))
    report = build_report(analyze_frame(gone, "grid"))
    picture = next(p for s in report.sections for p in s.pictures if p.name == "loss-against-compute")
    words = [text.get_text() for legend in picture.figure.legends for text in legend.get_texts()]
    assert "diverged (1)" in words


def test_words_of_a_comparison_name_no_cells():
    report = build_report(analyze_frame(ladder(), "grid"))
    said = " ".join(map(str, [*report.lead, *report.warnings, *tables_of(report)]))
    assert "12 size-budget pairs at 4 sizes" in said and " cell" not in said


def test_a_figure_is_on_the_page_by_its_line_of_the_table(monkeypatch):
    def points_of(analysis):
        return {"points": analysis.points.frame, "note": "planted"} if analysis.experiment == "drawn" else None

    entry = FigureEntry(FIGURES["loss-against-tokens"].draw, "finals", "Planted caption.", points_of)
    monkeypatch.setitem(FIGURES, "planted", entry)
    shown = {name: build_report(analyze_frame(ladder(), name)).sections for name in ("drawn", "left out")}
    found = {one.name: [(p.name, p.caption) for p in one.pictures] for one in shown["drawn"]}
    assert found["finals"] == [("planted", "Planted caption.")]
    assert [name for name, _ in found["speed-ups"]] == ["speed-ups", "loss-against-tokens"]
    assert [name for name, _ in found["laws"]] == ["loss-against-compute"]
    assert "planted" not in [picture.name for one in shown["left out"] for picture in one.pictures]


def test_every_figure_of_the_page_says_what_it_is_drawn_from():
    on_page = {name for name, entry in FIGURES.items() if entry.section}
    assert READERS.keys() <= on_page
    for name in on_page:
        entry = FIGURES[name]
        assert (name in READERS) != bool(entry.inputs and entry.caption), name
