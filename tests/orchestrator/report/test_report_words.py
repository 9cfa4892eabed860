"""How numbers, bounds and tables are put into words, and how a page is written and remembered."""

import itertools
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure

from scalewright.fitting.result import Parameter
from scalewright.fitting.words import counted
from scalewright.orchestrator.analysis.analyze import LawFit
from scalewright.orchestrator.report.format import interval, listed, number, percent
from scalewright.orchestrator.report.html import Picture, Report, Section, Table, file_label, write_report
from scalewright.orchestrator.report.law_tables import estimate_words, parameter_words
from scalewright.orchestrator.report.page import figures_dir
from scalewright.orchestrator.report.page_store import Page, read_page, write_page
from scalewright.orchestrator.study import Study


@pytest.mark.parametrize(
    ("value", "digits", "words"),
    [
        (1.8734, 3, "1.87"),
        (0.05123, 3, "0.0512"),
        (0.05123, 2, "0.051"),
        (12345.6, 3, "12,346"),
        (2.5e13, 3, "2.50e13"),
        (1.3e-6, 2, "1.3e-6"),
        (0.0, 3, "0.00"),
        (math.nan, 3, "-"),
        (math.inf, 3, "unbounded"),
        (-0.0436, 2, "−0.044"),
        (-1.3e-6, 2, "−1.3e-6"),
        (np.float64(2.5e13), 3, "2.50e13"),
    ],
)
def test_numbers_are_written_as_people_write_them(value, digits, words):
    assert number(value, digits) == words


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (1.4, 1.9, "[1.40, 1.90]"),
        (1.4, math.inf, "at least 1.40"),
        (-math.inf, 1.9, "at most 1.90"),
        (None, None, "not identified"),
    ],
)
def test_an_open_interval_is_a_bound_in_words(low, high, words):
    assert interval(low, high) == words


@pytest.mark.parametrize(
    ("one_sided", "low", "high", "words"),
    [
        (None, 0.3, 0.5, "0.400 [0.300, 0.500]"),
        (None, 0.03, 2.0, "weak: within [0.0300, 2.00]"),
        ("upper", 0.0, 1.3, "at most 1.30"),
        ("lower", 0.2, math.inf, "at least 0.200"),
        ("none", 0.0, math.inf, "not identified"),
    ],
)
def test_a_parameter_shows_a_value_only_where_the_runs_give_one(one_sided, low, high, words):
    assert estimate_words(Parameter("alpha", 0.4, 0.05, low, high, one_sided)) == words


def test_a_law_that_could_not_be_fitted_shows_no_number():
    assert parameter_words(LawFit("chinchilla", "gpt+", refused="too few sizes"), "alpha") == "not fitted"


def test_lists_counts_and_percents():
    assert listed(["a"]) == "a" and listed(["a", "b"]) == "a and b" and listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcdefgh"), 3) == "a, b, c and 5 more"
    assert counted(1, "run") == "1 run" and counted(2, "optimum", "optima") == "2 optima"
    assert percent(-0.082) == "−8.2%" and percent(0.0044, 2) == "+0.44%"


class Tags(HTMLParser):
    """Collects what a page holds, and that every element that was opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.images: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.images.append(dict(attrs)["src"])
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "td":
            self.cells.append(data)


def small_report() -> Report:
    figure = Figure(figsize=(2, 2))
    figure.subplots().plot([1, 2], [1, 2])
    table = Table("T", ({"name": "<b>", "value": "1.2× [1, 2]"}, {"name": "x & y", "value": "-"}), ("a note",))
    section = Section("s", "Section", ("text",), (table,), (Picture("line", lambda: figure, "a line"),))
    return Report("Title <1>", ("fact",), ("lead",), ("careful",), (section,))


def test_a_page_is_well_formed_escaped_and_holds_its_pictures(tmp_path):
    page = write_report(small_report(), tmp_path)
    tags = Tags()
    tags.feed(page.read_text())
    assert tags.open == []
    assert tags.cells == ["<b>", "1.2× [1, 2]", "x & y", "-"]
    assert len(tags.images) == 1 and tags.images[0].startswith("data:image/png;base64,")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "line.png", "line.svg"]


def test_the_same_report_is_the_same_bytes(tmp_path):
    for folder in ("a", "b"):
        write_report(small_report(), tmp_path / folder)
    for name in ("index.html", "line.png", "line.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_columns_of_numbers_are_set_flush_right():
    row = {
        "n": "12",
        "x": "−3.1%",
        "ratio": "1.70× [1.4, 2.0]",
        "big": "2.5e13",
        "words": "at most 3",
        "cells": "9 cells",
    }
    assert Table("T", (row,)).numeric == {"n", "x", "ratio", "big"}


def test_a_page_is_remembered_until_its_key_or_its_files_change(tmp_path):
    path = write_report(small_report(), tmp_path)
    page = Page((Table("T", ({"a": "1"},), ("n",)),), ("line",), (tmp_path / "line.png", path), path)
    write_page(page, "key")
    assert read_page(tmp_path, "key") == page
    assert read_page(tmp_path, "other") is None
    (tmp_path / "line.png").unlink()
    assert read_page(tmp_path, "key") is None


@pytest.mark.parametrize("rubbish", ["", "{", "[]", json.dumps({"key": "key", "files": []})])
def test_a_torn_memory_of_a_page_is_ignored(tmp_path, rubbish):
    (tmp_path / "report.json").write_text(rubbish)
    assert read_page(tmp_path, "key") is None


def test_an_experiment_named_like_a_path_stays_in_the_figures_folder(tmp_path):
    for name in ("../../etc/x", "..", "/etc"):
        assert figures_dir(Study.at(tmp_path), name).resolve().parent == tmp_path.resolve() / "figures"
    assert len({figures_dir(Study.at(tmp_path), name) for name in ("gpt+", "gpt-", "gpt_", "gpt ")}) == 4


def test_labels_become_readable_file_names():
    assert [file_label(one) for one in ("gpt+", "pre-ln+gpas", "v1.5", "a_b")] == [
        "gpt_plus",
        "pre-ln_plus_gpas",
        "v1_dot_5",
        "a__b",
    ]


def test_no_two_labels_become_the_same_file_name():
    labels = [
        "".join(word)
        for n in range(1, 5)
        for word in itertools.product(["a", "plus", "+", "-", "_", ".", "/"], repeat=n)
    ]
    labels = sorted(set(labels))  # "aplus" may be spelled in one way only
    names = {file_label(label) for label in labels}
    assert len(names) == len(labels)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in names)
