"""The analysing verbs on a study whose runs were planned for real and whose results were planted, not trained."""

import csv
import json
import math
import re
import sqlite3
from pathlib import Path

import pytest
from planted_study import FASTER, YAML, best_rate, plant, write_results

from scalewright.orchestrator.analysis.analyze import analyze
from scalewright.orchestrator.cli import run
from scalewright.orchestrator.plan.make import plan_file
from scalewright.orchestrator.report.comparison_tables import speed_ups_table


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    return plant(tmp_path_factory.mktemp("study") / "planted").parent


@pytest.fixture(autouse=True)
def in_study(study, monkeypatch):
    monkeypatch.chdir(study)
    monkeypatch.delenv("SCALEWRIGHT_DB", raising=False)


def answer(capsys, *arguments: str) -> str:
    assert run(list(arguments)) == 0
    return capsys.readouterr().out


def refusal(capsys, *arguments: str) -> str:
    assert run(list(arguments)) == 1
    return capsys.readouterr().err


def test_fit_prints_the_speed_up_that_was_planted_and_what_to_keep_in_mind(capsys):
    printed = answer(capsys, "fit")
    row = next(line for line in printed.splitlines() if "anGPT" in line and "tokens" in line)
    ratio = float(row.split("×")[0].split()[-1])
    assert ratio == pytest.approx(FASTER["angpt"], rel=0.1)
    assert "Every point is a single seed" in printed
    assert "nothing here is evidence about larger models" in printed


def test_fit_as_json_is_the_one_object_that_was_promised(capsys):
    told = json.loads(answer(capsys, "fit", "planted", "--law", "chinchilla", "--by", "none", "--json"))
    assert {"law", "objective", "objective_value", "n", "excluded", "params", "certificate", "fit_id"} <= set(told)
    assert (told["law"], told["objective"], told["n"], told["excluded"]) == ("chinchilla", "huber", 18, [])
    assert {"value", "low", "high", "se"} <= set(told["params"]["alpha"])


def test_a_fit_is_stored_once_with_the_runs_that_entered(capsys, study):
    first = json.loads(answer(capsys, "fit", "--law", "pure-power", "--by", "none", "--exclude-worst", "2", "--json"))
    again = json.loads(answer(capsys, "fit", "--law", "pure-power", "--by", "none", "--exclude-worst", "2", "--json"))
    assert first == again
    assert len(first["excluded"]) == 2 and all("largest losses" in item["reason"] for item in first["excluded"])
    with sqlite3.connect(study / "runs.sqlite") as database:
        counts = dict(
            database.execute(
                "SELECT entered, count(*) FROM fit_runs WHERE fit_id = ? GROUP BY entered", [first["fit_id"]]
            ).fetchall()
        )
    assert counts == {1: 16, 0: 2}


def test_several_labels_are_fitted_apart_and_named(capsys):
    told = json.loads(answer(capsys, "fit", "--law", "pure-power", "--json"))
    assert {"alpha[gpt+]", "alpha[angpt]"} <= set(told["params"])
    assert [one["label"] for one in told["fits"]] == ["gpt+", "angpt"]


def test_held_out_runs_do_not_enter_and_are_predicted(capsys):
    told = json.loads(answer(capsys, "fit", "--law", "pure-power", "--holdout", "n_tokens > 3e5", "--json"))
    for one in told["fits"]:
        assert one["n"] == 6 and len(one["held_out"]) == 3
        assert all(item["reason"] == "holdout" for item in one["excluded"])
        assert all(row["low"] < row["predicted"] < row["high"] for row in one["held_out"])


def test_figures_writes_pictures_and_a_page_that_needs_nothing_else_twice_the_same(capsys, study):
    written = [Path(line) for line in answer(capsys, "figures").split()]
    folder = study / "figures" / "planted"
    names = {"loss-against-compute", "loss-against-tokens", "speed-ups", "training-curves", "layers"}
    assert {path.name for path in written} == {f"{name}.png" for name in names} | {"index.html"}
    page = (folder / "index.html").read_text()
    assert page.count("data:image/png;base64,") == len(names)
    assert "http" not in page
    for name in names:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert f'href="{name}.svg"' in page and (folder / f"{name}.svg").exists()
    assert page.count("completed") == 18
    assert "Convergence speed-ups" in page and "L = K·C^−γ" in page
    answer(capsys, "report")
    assert (folder / "index.html").read_text() == page


def test_the_tables_of_a_paper_hold_the_numbers_of_the_runs(capsys, study):
    page, *paths = map(Path, answer(capsys, "report", "--tables", "csv,latex,markdown").split())
    assert page.name == "index.html"
    assert [path.name for path in paths] == ["final-losses.csv", "final-losses.tex", "final-losses.md"]
    rows = list(csv.DictReader(paths[0].read_text().splitlines()))
    runs = json.loads(answer(capsys, "runs", "planted", "--json"))
    assert len(rows) == len(runs) == 18
    losses = {(run["label"], run["size"], run["n_tokens"]): run["loss_nats"] for run in runs}
    for row in rows:
        loss = losses[row["label"], row["size"], int(float(row["n_tokens"]))]
        assert float(row["loss_nats"]) == pytest.approx(loss, rel=1e-12)
        assert float(row["perplexity"]) == pytest.approx(math.exp(loss), rel=1e-12)
        if row["label"] == "angpt":
            base = losses["gpt+", row["size"], int(float(row["n_tokens"]))]
            assert float(row["difference_nats"]) == pytest.approx(loss - base, rel=1e-9)
            assert float(row["low"]) < loss - base < float(row["high"]) and row["baseline"] == "GPT+"
        else:
            assert row["difference_nats"] == row["baseline"] == ""
    latex, page_words = paths[1].read_text(), page.read_text()
    body = latex.split(r"\midrule")[1].split(r"\bottomrule")[0]
    assert body.count(r"\addlinespace") == 8 and r"\toprule" in latex and "95\\% interval" in latex
    for row in rows:  # bold where the interval says lower, and nowhere else
        bold = rf"\textbf{{{float(row['loss_nats']):.3f}}}" in body
        assert bold == (row["high"] != "" and float(row["high"]) < 0), row
        assert f"{float(row['loss_nats']):.3f}" in page_words
    assert rf"$-${abs(float(rows[1]['difference_nats'])):.3f} [$-$" in body
    assert paths[2].read_text().count("\n| ") == 19


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("report", "--tables", "latex,word"), "--tables: 'word' is no format of a table; expected some of latex,"),
        (("fit", "absent.yaml"), "absent.yaml: no such file"),
        (("fit", "plante"), "no experiment 'plante' (experiments: planted)"),
        (("fit", "--law", "chinchila"), "did you mean chinchilla?"),
        (("fit", "--objective", "hubber"), "did you mean huber?"),
        (("fit", "--law", "power", "--delta", "-1"), "delta must be positive"),
        (("fit", "--objective", "lad", "--delta", "0.01"), "only the objective huber has a width, not lad"),
        (("fit", "--law", "power", "--n-convention", "all"), "valid: non-embedding"),
        (("fit", "--law", "power", "--by", "colour"), "unknown column to group by 'colour'"),
        (("fit", "--holdout", "n_tokens >"), "n_tokens >"),
    ],
)
def test_a_mistake_gets_one_line(capsys, arguments, expected):
    told = refusal(capsys, *arguments)
    assert expected in told and told.startswith("scalewright: ") and told.count("\n") == 1


def test_a_study_without_a_finished_run_is_told_so(capsys, tmp_path, monkeypatch):
    path = plant(tmp_path / "fresh", n_left=18)
    monkeypatch.chdir(path.parent)
    assert "no run has ended yet (18 planned)" in refusal(capsys, "fit")
    assert "no run has ended yet" in refusal(capsys, "figures")


def test_unfinished_runs_are_counted_with_their_reason(capsys, tmp_path, monkeypatch):
    path = plant(tmp_path / "partly", n_left=2)
    monkeypatch.chdir(path.parent)
    assert "2 runs did not enter: not finished" in answer(capsys, "fit")


def test_compare_prints_a_sentence_with_what_it_rests_on_and_draws_it(capsys, study):
    printed = answer(capsys, "compare", "angpt", "gpt+")
    assert printed.startswith("anGPT over GPT+: GPT+ needs 1.")
    assert "1 seed: seed noise is poorly known" in printed
    assert "angpt and gpt+ also differ in " in printed and "optimizer.weight_decay (0.0 against 0.1)" in printed
    assert (study / "figures" / "planted" / "compare-angpt.over.gpt_plus.png").exists()
    told = json.loads(answer(capsys, "compare", "angpt", "gpt+", "--curve", "interpolated", "--json"))
    assert (told["method"], told["baseline"], told["curve"]) == ("angpt", "gpt+", "interpolated")
    assert {"differences", "speedups", "pooled", "multipliers", "sentence", "warnings"} <= set(told)


def test_trust_flags_answer_together_each_with_its_figure(capsys, study):
    flags = ("--bootstrap", "50", "--rolling-origin", "--diagnostics", "--specification-curve", "--profile", "alpha")
    told = json.loads(answer(capsys, "fit", "--law", "pure-power", *flags, "--json"))
    assert set(told) == {"fit", "bootstrap", "rolling-origin", "diagnostics", "specification-curve", "profile"}
    assert all(set(part) >= {"gpt+", "angpt"} for name, part in told.items() if name not in ("fit", "bootstrap"))
    assert {one["label"] for one in told["fit"]["fits"]} >= {"gpt+", "angpt"}
    drawn = {path.name for path in (study / "figures" / "planted").glob("*-angpt*.png")}
    assert {"rolling-origin-angpt.png", "diagnostics-angpt.png", "profile-angpt-alpha.png"} <= drawn


def test_what_fit_calls_not_identified_no_other_flag_prints_as_a_value(capsys):
    """Nine runs do not identify this law; every part of the trust section must say so as the plain fit does."""
    params = json.loads(answer(capsys, "fit", "--law", "chinchilla", "--json"))["fits"][0]["params"]
    loose = [name for name, one in params.items() if one["one_sided"] or one["high"] > 10 * one["low"]]
    assert loose
    flags = ("--specification-curve", "--bootstrap", "20", "--diagnostics")
    printed = answer(capsys, "fit", "--law", "chinchilla", *flags)
    assert printed.count("these runs do not identify") >= 6  # two labels, three flags
    profiled = answer(capsys, "fit", "--law", "chinchilla", "--profile", loose[0])
    for table in (printed, profiled):
        assert "not identified" in table
    told = json.loads(answer(capsys, "fit", "--law", "chinchilla", "--specification-curve", "--json"))
    rows = told["specification-curve"]["gpt+"]["rows"]
    assert not all(row["identified"] for row in rows if row["parameter"] == loose[0])


def test_a_profile_is_lowest_at_the_estimate_and_crosses_the_limit_at_the_ends(capsys):
    told = json.loads(answer(capsys, "fit", "--law", "pure-power", "--profile", "alpha", "--json"))["profile"]["gpt+"]
    inside = [row["rise"] for row in told["profile"] if told["low"] * 1.02 < row["value"] < told["high"] * 0.98]
    outside = [row["rise"] for row in told["profile"] if not told["low"] * 0.98 < row["value"] < told["high"] * 1.02]
    assert max(inside) < told["threshold"] < min(outside)
    best = min(told["profile"], key=lambda row: row["rise"])
    assert best["value"] == pytest.approx(told["value"], rel=0.1)


def test_design_says_what_a_grid_cannot_tell_and_needs_no_runs(capsys, tmp_path, monkeypatch):
    path = plant(tmp_path / "unrun", n_left=18)
    monkeypatch.chdir(path.parent)
    assert "the floor stays unknown" in answer(capsys, "design")
    told = json.loads(answer(capsys, "design", "--scatter", "0.01", "--assume", "E=0.9,alpha=0.3", "--json"))
    report = told["gpt+"]["as planned"]
    assert (report["n_runs"], report["n_sizes"], report["n_budgets"]) == (9, 3, 3)
    assert report["passes"] == (not report["problems"])
    assert "expected E=NUMBER" in refusal(capsys, "design", "--assume", "gamma=1")


def test_a_forecast_is_made_before_and_scored_after(capsys, tmp_path, monkeypatch):
    path = plant(tmp_path / "growing", n_left=3)
    monkeypatch.chdir(path.parent)
    told = json.loads(answer(capsys, "forecast", "--json"))
    assert told["warnings"] == []
    assert len(told["pending"]) == 3 and told["scored"] == []
    assert all(row["low"] < row["predicted"] < row["high"] for row in told["pending"])
    plan, study = plan_file(path)
    whole = analyze(study, "planted", compare=[("angpt", "gpt-")])
    assert whole.to_come.rows["predicted"].tolist() == pytest.approx([row["predicted"] for row in told["pending"]])
    assert (whole.comparisons, whole.advised) == ((), "")
    [why] = whole.refusals
    assert why.startswith("angpt over gpt-: unknown method 'gpt-'")
    assert speed_ups_table((), whole.refusals).notes[-1] == f"Not compared: {why}"
    for planned in plan.runs[-3:]:
        write_results(study.run_dir(planned.run_id), planned, 1.0)
    told = json.loads(answer(capsys, "forecast", "--json"))
    assert told["pending"] == [] and {row["run_id"] for row in told["scored"]} == {run.run_id for run in plan.runs[-3:]}
    assert all(abs(row["error"]) < 0.2 for row in told["scored"])
    said = next(line for line in told["warnings"] if "made before the run" in line)
    assert "of 3 forecasts" in said and "2.8 expected" in said and "err together" in said


def test_imported_runs_marked_holdout_are_forecast_from_the_others(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes, ratios = (1e7, 3e7, 1e8, 3e8, 1e9), (10, 20, 40, 80)
    rows = [(n, n * r, 1.8 + 480 * n**-0.35 + 2080 * (n * r) ** -0.37, n > 2e8) for n in sizes for r in ratios]
    text = "\n".join(["n_params,n_tokens,loss,holdout", *(",".join(map(str, row)) for row in rows)])
    (tmp_path / "ladder.csv").write_text(text)
    answer(capsys, "import", "ladder.csv", "--as", "ladder")
    told = json.loads(answer(capsys, "forecast", "ladder", "--json"))
    assert {row["n_params"] for row in told["held_out"]} == {3e8, 1e9} and told["pending"] == []
    for row in told["held_out"]:
        assert row["low"] < row["measured"] < row["high"]
        assert row["measured"] == pytest.approx(1.8 + 480 * row["n_params"] ** -0.35 + 2080 * row["n_tokens"] ** -0.37)
    assert told["model_error"][0]["n_cuts"] > 3 and sum(told["model_error"][0]["weights"].values()) == pytest.approx(1)
    said = answer(capsys, "forecast", "ladder")
    assert "Runs held out, predicted from the others" in said and "8 of 8 held-out runs in the 95% interval" in said
    assert re.search(r"imported: additive \d+%, local power \d+%; model error \S+% of the loss for each e-fold", said)
    assert json.loads(answer(capsys, "forecast", "ladder", "--json"))["scored"] == []  # they had a loss before
    page = Path(answer(capsys, "report", "ladder").strip()).read_text()
    assert "What larger runs are expected to give" in page and "8 of 8 held-out runs in the 95% interval" in page
    assert "of the loss for each e-fold" in page


def test_a_forecast_is_of_the_best_rate_where_rates_were_swept(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = [(1e8, 1e9 * 2**k, 1 + 300 * (1e9 * 2**k) ** -0.3, k > 5) for k in range(8)]
    rows = [(n, d, loss * bad, rate, held) for n, d, loss, held in cells for rate, bad in ((0.001, 1.3), (0.002, 1))]
    text = "\n".join(["n_params,n_tokens,loss,lr_peak,holdout", *(",".join(map(str, row)) for row in rows)])
    (tmp_path / "swept.csv").write_text(text)
    answer(capsys, "import", "swept.csv", "--as", "swept")
    told = json.loads(answer(capsys, "forecast", "swept", "--json"))
    assert len(told["held_out"]) == 2
    assert all(
        row["high"] / row["low"] < 1.2 and row["low"] < row["measured"] < row["high"] for row in told["held_out"]
    )
    assert any("6 runs not at the best lr_peak of their sweep left out" in line for line in told["warnings"])


def test_hyper_finds_planted_optima_flags_edges_and_is_referred_to_by_name(capsys, tmp_path, monkeypatch):
    swept = YAML.replace("[0.1M, 0.2M, 0.4M]", "[0.1M]").replace("experiment: planted", "experiment: swept")
    path = plant(tmp_path / "swept", text=swept + "lr: 0.02\nlr_factor: [0.25, 0.5, 1.0, 2.0]\n", best_rate=True)
    monkeypatch.chdir(path.parent)
    told = json.loads(answer(capsys, "hyper", "--json"))
    found = {(one["label"], one["size"]): one for one in told["optima"]}
    for size in ("small", "middle", "large"):
        own = found["gpt+", size]
        assert own["best"] == pytest.approx(best_rate(own["n_params"]), rel=0.02) and not own["edge"]
    printed = answer(capsys, "hyper")
    assert "lr: {rule: law, law: swept}" in printed
    (path.parent / "next.yaml").write_text(YAML.replace("planted", "next") + "lr: {rule: law, law: swept}\n")
    plan, _ = plan_file(path.parent / "next.yaml")
    for run_ in plan.runs:
        rate = run_.spec.training["optimizer"]["lr_peak"]
        assert rate == pytest.approx(best_rate(run_.planned["n_params_non_embedding"]), rel=0.05)


def test_a_batch_that_is_an_axis_is_no_seed_of_the_other_batch(capsys, tmp_path, monkeypatch):
    text = YAML.replace("[0.1M, 0.2M, 0.4M]", "[0.1M]").replace("experiment: planted", "experiment: batches")
    text = text.replace("batch: 2", "batch: [2, 8]") + "lr: 0.02\nlr_factor: [0.25, 0.5, 1.0, 2.0]\n"
    path = plant(tmp_path / "batches", text=text, best_rate=True)
    monkeypatch.chdir(path.parent)
    told = json.loads(answer(capsys, "hyper", "--json"))
    assert len(told["optima"]) == len({(one["label"], one["size"], one["settings"]) for one in told["optima"]})
    assert {one["settings"].split()[0] for one in told["optima"]} == {"batch_tokens"}
    assert "trained with" in answer(capsys, "hyper")


def test_an_unknown_law_is_refused_with_every_law_there_is(capsys):
    said = refusal(capsys, "fit", "--law", "chinchila")
    assert "did you mean chinchilla" in said and "isoflop" in said and "envelope" in said


def test_points_of_another_study_are_analysed_like_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{n},{6 * n * d:.0f},{d},{2 + 400 * n**-0.34 + 400 * d**-0.28:.6f}"
        for n in (1e7, 3e7, 1e8, 3e8) for d in (1e8, 1e9, 1e10)
    ]  # fmt: skip
    (tmp_path / "points.csv").write_text("\n".join(["n,c,d,final", *rows]))
    columns = "n_params=n,flops=c,n_tokens=d,loss=final"
    answer(capsys, "import", "points.csv", "--as", "paper", "--columns", columns)
    told = json.loads(answer(capsys, "fit", "paper", "--law", "chinchilla", "--json"))
    assert told["params"]["alpha"]["value"] == pytest.approx(0.34, rel=1e-3)
    assert told["params"]["beta"]["value"] == pytest.approx(0.28, rel=1e-3)
    assert (tmp_path / "figures" / "paper").exists() is False
    report = json.loads(answer(capsys, "design", "paper", "--json"))["imported"]["as planned"]
    assert (report["n_runs"], report["n_sizes"], report["n_budgets"]) == (12, 4, 3)
    assert "no experiment 'papre'" in refusal(capsys, "design", "papre")
    answer(capsys, "figures", "paper")
    assert (tmp_path / "figures" / "paper" / "index.html").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("compare", "angpt", "gpt"), "did you mean gpt+?"),
        (("compare", "angpt", "gpt+", "--curve", "straight"), "valid: interpolated, fitted"),
        (("hyper",), "no method, size and budget has 3 values of lr_peak"),
        (("hyper", "--setting", "depth_of_field"), "no column depth_of_field"),
        (("fit", "--profile", "gamma"), "valid: E, A, alpha, B, beta"),
        (("fit", "--law", "isoflop"), "isoflop needs 3 computes"),
        (("design", "absent.yaml"), "absent.yaml: no such file"),
    ],
)
def test_a_mistake_of_the_other_verbs_gets_one_line(capsys, arguments, expected):
    told = refusal(capsys, *arguments)
    assert expected in told and told.count("\n") == 1


def test_what_each_layer_did_is_found_by_curve_and_drawn_of_each_method(capsys, study):
    runs = json.loads(answer(capsys, "runs", "--json"))
    large = next(row["run_id"] for row in runs if row["n_params"] == max(one["n_params"] for one in runs))
    printed = answer(capsys, "curve", large, "--metric", "activation_variance")
    assert f"{large}, layer 1" in printed and f"{large}, layer 2" in printed
    rows = json.loads(answer(capsys, "curve", large, "--metric", "activation_variance", "--json"))
    assert [(row["layer"], row["value"]) for row in rows] == [(0, 1.2), (1, 3.2), (0, 1.0), (1, 3.0)]
    answer(capsys, "figures")
    page = (study / "figures" / "planted" / "index.html").read_text()
    assert "What each layer does" in page and 'href="layers.svg"' in page
