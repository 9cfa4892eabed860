"""Every entry of FIGURES, drawn from planted frames: it must be a picture that a person can read."""

import io
import itertools
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from planted_frames import LABELS, band, finals, inputs, sweep_points

from scalewright.fitting.figures.axes import PlainLogLocator, plain, short
from scalewright.fitting.figures.gallery import FIGURES
from scalewright.fitting.figures.losses import Band
from scalewright.fitting.figures.style import SPARE_COLOURS, STYLES, drawn_at, in_order, looks_of, name_of, style_of
from scalewright.fitting.figures.widths import WIDTHS

NOTE = "One seed a run. Bars: 95% interval."
LONG = "gated attention with a head-wise sigmoid after SDPA, variant"
RENAMED = {label: f"{LONG} {n}" for n, label in enumerate(LABELS)}
INPUTS = inputs()


def renamed(one: object) -> object:
    """The same input with names of 60 letters."""
    if isinstance(one, pd.DataFrame):
        return one.replace(RENAMED).assign(**{"name": LONG} if "predicted" in one else {})
    if isinstance(one, dict):
        return {RENAMED.get(key, key): renamed(value) for key, value in one.items()}
    return replace(one, words=f"{LONG}: a = 0.5 [0.4, 0.6]") if isinstance(one, Band) else one


def drawn(name: str, *, long: bool = False) -> Figure:
    args, options = INPUTS[name]
    if long:
        args, options = tuple(map(renamed, args)), {key: RENAMED.get(str(one), one) for key, one in options.items()}
    figure = FIGURES[name](*args, **options, note=NOTE)
    FigureCanvasAgg(figure).draw()
    return figure


def texts(figure: Figure) -> list[Text]:
    """Every text that shows, ticks outside the axes' limits left out."""
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    hidden = {
        id(label)
        for axes in figure.axes
        for axis, (low, high) in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim())))
        for tick in axis.get_major_ticks()
        for label in (tick.label1, tick.label2)
        if not (low <= tick.get_loc() <= high and label.get_visible())
    }
    hidden |= {id(axes.get_children()) for axes in figure.axes if not axes.get_visible()}
    return [text for text in found if id(text) not in hidden]


def test_the_planted_frames_cover_the_table():
    assert set(INPUTS) == set(FIGURES)


ON_THE_PAGE = [name for name, entry in FIGURES.items() if entry.section]
ELSEWHERE = sorted(set(WIDTHS) - {"page"})
PLACES = [*itertools.product(FIGURES, ["page"]), *itertools.product(ON_THE_PAGE, ELSEWHERE)]


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("name,width", PLACES)
def test_no_text_of_a_figure_overlaps_another_or_leaves_the_page(name, width, long):
    with drawn_at(width) as at:
        figure = drawn(name, long=long)
    assert at.inches is None or figure.get_figwidth() == at.inches
    page = figure.bbox
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
    assert len(boxes) > 5
    for words, box in boxes:
        assert page.x0 - 2 <= box.x0 and box.x1 <= page.x1 + 2 and page.y0 - 2 <= box.y0 and box.y1 <= page.y1 + 2, (
            words
        )
    for (first, one), (second, other) in itertools.combinations(boxes, 2):
        overlap_x = min(one.x1, other.x1) - max(one.x0, other.x0)
        overlap_y = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert overlap_x < 2 or overlap_y < 2, f"{first!r} lies on {second!r}"


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_carries_its_note_and_names_its_axes(name):
    figure = drawn(name)
    words = {text.get_text() for text in texts(figure)}
    assert any(NOTE in one for one in words)
    named = [axes.get_xlabel() for axes in figure.axes if axes.get_visible() and axes.get_xlabel()]
    assert named


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_leaves_its_inputs_and_the_settings_of_matplotlib_as_they_were(name):
    before = dict(mpl.rcParams)
    args, options = inputs()[name]
    FIGURES[name](*args, **options)
    assert dict(mpl.rcParams) == before
    for given, fresh in zip(args, inputs()[name][0], strict=True):
        if isinstance(given, pd.DataFrame):
            pd.testing.assert_frame_equal(given, fresh)


def test_the_same_input_gives_the_same_picture_to_the_byte():
    pictures = []
    for _ in range(2):
        buffer = io.BytesIO()
        drawn("loss-against-compute").savefig(buffer, format="png", metadata={"Software": None})
        pictures.append(buffer.getvalue())
    assert pictures[0] == pictures[1]


def test_a_run_that_does_not_enter_the_fit_is_drawn_hollow():
    axes = drawn("loss-against-compute").axes[0]
    hollow = [c for c in axes.collections if len(c.get_offsets()) and np.allclose(c.get_facecolor()[0][:3], 1.0)]
    assert sum(len(c.get_offsets()) for c in hollow) == int((~finals()["on_frontier"]).sum())


def test_bars_over_tokens_span_the_seeds():
    seeds = pd.concat([finals(), finals().assign(seed=1, loss_nats=lambda f: f["loss_nats"] + 0.1)])
    figure = FIGURES["loss-against-tokens"](seeds)
    bars = figure.axes[0].containers[0].lines[2][0].get_segments()
    assert [round(bar[1][1] - bar[0][1], 9) for bar in bars] == [0.1, 0.1, 0.1]


def test_a_one_sided_speed_up_says_that_its_end_is_open():
    words = " ".join(text.get_text() for text in texts(drawn("speed-ups")))
    assert "0.90× [0.81, open], n = 9" in words


def test_an_interval_without_end_is_said_in_words():
    words = " ".join(text.get_text() for text in texts(drawn("profile")))
    assert "at least 0.2, no upper bound" in words


def test_labels_differ_in_more_than_colour():
    looks = [(style.colour, style.marker) for style in STYLES.values()]
    assert len(set(looks)) == len(looks)
    assert len({style.marker for style in STYLES.values()}) == len(STYLES)


def test_methods_have_colours_that_stand_apart_and_a_gate_changes_the_colour():
    colours = {label: np.array(to_rgb(style.colour)) for label, style in STYLES.items()}
    for one, other in itertools.combinations(colours, 2):
        assert np.abs(colours[one] - colours[other]).max() > 0.1, (one, other)
    for label in (one for one in colours if f"{one}+gpas" in colours):
        assert np.abs(colours[label] - colours[f"{label}+gpas"]).max() > 0.25, label


def test_ten_unknown_labels_of_one_figure_have_ten_markers_and_all_the_colours():
    looks = looks_of(f"{LONG} {n}" for n in range(10))
    assert len({look.marker for look in looks.values()}) == 10
    assert len({look.colour for look in looks.values()}) == len(SPARE_COLOURS)
    many = [*looks_of(["gpt+", *(f"{LONG} {n}" for n in range(60))]).values(), STYLES["gpt+"]]
    assert len({(look.colour, look.marker) for look in many}) == 61
    figure = FIGURES["loss-against-tokens"](pd.concat([finals().assign(label=f"{LONG} {n}") for n in range(10)]))
    lines = [container.lines[0] for container in figure.axes[0].containers]
    assert len({(line.get_marker(), line.get_color()) for line in lines}) == 10


def test_a_look_does_not_depend_on_the_order_of_rows():
    labels = [f"{LONG} {n}" for n in range(5)]
    assert looks_of(labels) == looks_of(labels[::-1])


@pytest.mark.parametrize("name", FIGURES)
def test_only_what_lies_past_the_runs_is_dashed(name):
    lines = [line for line in drawn(name).findobj(Line2D) if len(line.get_xdata())]
    assert {line.get_linestyle() for line in lines} <= {"-", "None"}


def test_a_frontier_is_dashed_past_its_last_run():
    last = 1e11
    figure = FIGURES["compute-optimal"]({"gpt+": replace(band(), last=last)}, {"gpt+": replace(band(), last=last)})
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--" and len(line.get_xdata())]
    assert len(dashed) == 1 and min(dashed[0].get_xdata()) > last


@pytest.mark.parametrize("name", FIGURES)
def test_a_legend_lies_on_no_data(name):
    figure = drawn(name)
    assert all(axes.get_legend() is None for axes in figure.axes)


def test_the_parabola_of_a_sweep_ends_with_the_values_that_were_tried():
    figure = drawn("sweeps")
    tried = sweep_points()["lr_peak"]
    curves = [line.get_xdata() for line in figure.axes[0].lines if len(line.get_xdata()) > 10]
    assert curves
    for x in curves:
        assert tried.min() * 0.999 <= min(x) and max(x) <= tried.max() * 1.001


def test_an_unknown_label_keeps_its_look_and_comes_last():
    assert style_of("my-method") == style_of("my-method")
    assert in_order(["zeta", "my-method", "angpt", "gpt+"]) == ["gpt+", "angpt", "my-method", "zeta"]


@pytest.mark.parametrize(("low", "high"), [(1.4, 2.2), (0.03, 0.9), (20, 200), (1, 1e6), (1e-3, 1e9)])
def test_ticks_of_a_log_axis_are_few_plain_and_inside(low, high):
    ticks = [tick for tick in PlainLogLocator(6).tick_values(low, high) if low <= tick <= high]
    assert 2 <= len(ticks) <= 9
    assert all(len(plain(tick)) <= 9 for tick in ticks)


def test_counts_are_written_as_people_write_them():
    assert [short(value) for value in (27_000, 141_312, 524_288, 1_048_576, 7e9)] == [
        "27k",
        "141k",
        "524k",
        "1.05M",
        "7B",
    ]


def test_a_specification_that_identifies_nothing_does_not_stretch_the_axis():
    rows = pd.DataFrame(
        {
            "objective": ["huber", "lad", "log-l2"],
            "value": [400.0, 420.0, 2e16],
            "low": [300.0, 310.0, 0.0],
            "high": [500.0, 520.0, np.inf],
            "identified": [True, True, False],
        }
    )
    figure = FIGURES["specification-curve"](rows, ["objective"], parameter="A", headline=400.0)
    bottom, top = figure.axes[0].get_ylim()
    assert 200 < bottom < 300 and 520 < top < 600
    assert "not identified by 1" in figure.axes[0].get_title(loc="left")


def test_one_wild_forecast_does_not_flatten_the_others():
    rows = pd.DataFrame({"law": "chinchilla", "decades": [0.5, 1.0, 1.5], "error": [0.01, -0.02, 1e6]})
    axes = FIGURES["rolling-origin"](rows).axes[0]
    assert axes.get_ylim()[1] <= 50 and "1 past the axis" in axes.get_title(loc="left")


ODD_LABELS = ("a$x_{1$b", "lr $5 vs $6", "_base", "方法", "\N{ROCKET} run", r"\frac{", "<b>bold</b>", "%s {0}")


@pytest.mark.filterwarnings("error")
def test_what_a_user_wrote_is_text_in_a_figure_and_never_syntax():
    names = dict(zip(LABELS, ODD_LABELS, strict=False))
    for some in (ODD_LABELS[:4], ODD_LABELS[4:]):
        names = dict(zip(LABELS, some, strict=True))
        points = finals().assign(label=lambda f, names=names: f["label"].map(names))
        for figure in (
            FIGURES["loss-against-tokens"](points, note="n"),
            FIGURES["loss-against-compute"](points, {label: band(name_of(label)) for label in some}, note="n"),
        ):
            FigureCanvasAgg(figure).draw()
            legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
            shown = {text.get_text() for legend in legends if legend for text in legend.get_texts()}
            assert {name_of(label) for label in some} <= shown
    assert name_of("lr $5 vs $6") == "lr $5 vs $6"
    assert name_of("_base").endswith("_base")


@pytest.mark.filterwarnings("error")
def test_seeds_that_end_at_the_same_loss_have_bars_of_no_length():
    points = pd.concat([finals().assign(seed=seed, loss_nats=2.7) for seed in range(3)])
    FigureCanvasAgg(FIGURES["loss-against-tokens"](points, note="n")).draw()


TEN = (*LABELS, *(f"a variant of the sub-layer's output norm with a learned scale, {n}" for n in range(6)))


def legend_words(figure: Figure) -> list[str]:
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    return [text.get_text().replace("\n", " ") for legend in legends if legend for text in legend.get_texts()]


def of_ten() -> pd.DataFrame:
    base = finals()[finals()["label"] == "gpt+"]
    return pd.concat([base.assign(label=label) for label in TEN], ignore_index=True)


@pytest.mark.parametrize("name", ["loss-against-compute", "loss-against-tokens"])
def test_ten_methods_with_long_names_all_stand_in_the_legend_inside_the_page(name):
    args = (of_ten(), {"gpt+": band()}) if name == "loss-against-compute" else (of_ten(),)
    figure = FIGURES[name](*args, note="a long note " * 40)
    FigureCanvasAgg(figure).draw()
    shown = legend_words(figure)
    for label in TEN:
        assert any(one.startswith(name_of(label)) for one in shown), label
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().startswith(("a variant", "a long note")):
            box = text.get_window_extent()
            assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y0 >= -1 and box.y1 <= figure.bbox.y1 + 1


@pytest.mark.filterwarnings("error")
def test_runs_without_any_law_have_a_legend():
    figure = FIGURES["loss-against-compute"](finals(), {})
    assert {name_of(label) for label in LABELS} <= set(legend_words(figure))


def test_filled_and_hollow_are_explained_in_the_picture():
    assert {"filled: lowest at its compute", "hollow: other runs"} <= set(legend_words(drawn("loss-against-compute")))


def test_a_wide_band_does_not_stretch_the_axis():
    points, wide = finals(), band()
    figure = FIGURES["loss-against-compute"](points, {"gpt+": replace(wide, low=wide.middle / 9, high=wide.middle * 9)})
    low, high = figure.axes[0].get_ylim()
    assert low > 0.8 * min(points["loss_nats"].min(), wide.middle.min())
    assert high < 1.2 * max(points["loss_nats"].max(), wide.middle.max())


def test_a_run_that_diverged_is_marked_and_counted():
    gone = pd.DataFrame({"label": ["angpt"], "flops": [3e11]})
    figure = FIGURES["loss-against-compute"](finals(), {}, diverged=gone)
    assert "diverged (1)" in legend_words(figure)
    assert any(3e11 in np.asarray(line.get_xdata(), float) for line in figure.axes[0].lines)


def test_many_sizes_are_a_page_and_the_note_says_how_many_are_drawn():
    base = finals()[finals()["size"] == "27k"]
    points = pd.concat([base.assign(size=f"s{n:02d}", n_params=27_000 * (n + 1)) for n in range(28)])
    figure = FIGURES["loss-against-tokens"](points, note="One seed.")
    assert len(figure.axes) == 9 and "9 of 28 sizes are drawn. Each panel has its own loss axis. One seed." in {
        t.get_text() for t in texts(figure)
    }


def test_past_the_runs_an_optimum_is_dashed():
    line = replace(band("GPT+"), last=1e11)
    axes = FIGURES["compute-optimal"]({"gpt+": line}, {"gpt+": line}).axes[0]
    ends = {one.get_linestyle(): (min(one.get_xdata()), max(one.get_xdata())) for one in axes.lines}
    assert ends["-"][1] <= 1e11 < ends["--"][0]


def test_every_line_of_the_design_figure_that_shows_is_named():
    points = pd.DataFrame({"label": "gpt+", "n_params": [1e6, 3e6, 1e7], "n_tokens": [2e7, 6e7, 2e9]})
    figure = FIGURES["design"](points)
    axes = figure.axes[0]
    bottom, top = axes.get_ylim()
    lines = [one for one in axes.lines if len(one.get_xdata()) == 2 and one.get_zorder() == 0]
    shown = [x for x in lines if x.get_ydata()[1] > bottom and x.get_ydata()[0] < top]
    assert len([text for text in axes.texts if ":1" in text.get_text()]) == len(shown) >= 3


def test_an_ablation_is_sorted_and_says_each_difference():
    figure = drawn("ablation")
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == ["GPT+", "Pre-LN", "Pre-LN + GPAS", "anGPT"]
    assert any("−0.030 [−0.040, −0.020], n = 3" in text.get_text() for text in texts(figure))


def test_layers_are_drawn_with_and_without_the_gate_on_one_axis():
    figure = drawn("layers")
    titles = [axes.get_title(loc="left") for axes in figure.axes[:2]]
    assert titles == ["Pre-LN", "Pre-LN + GPAS"]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert legend_words(figure) == ["step 100", "step 2k"]
