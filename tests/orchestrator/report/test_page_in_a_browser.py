"""The page in a browser: headings sort, long tables have a filter, and nothing is fetched."""

import re
import shutil
import subprocess

import pytest

from scalewright.orchestrator.report.html import Report, Section, Table, write_report

CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000"]
needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
TOKENS = ("0.4M", "27k", "1.2B", "-", "−3", "5,000", "1e+05", "9.5k", "2x", "1", "0")


@pytest.fixture
def page(tmp_path):
    rows = tuple({"tokens": tokens, "method": f"m{len(TOKENS) - place}"} for place, tokens in enumerate(TOKENS))
    short = ({"a": 2}, {"a": 1})
    tables = (Table("long", rows), Table("short", short), Table("one", short[:1]))
    return write_report(Report("t", sections=(Section("s", "S", tables=tables),)), tmp_path / "figures")


def after(page, script):
    """The page's first table, and the whole, after a script of a reader's clicks."""
    text = page.read_text().replace("</body>", f"<script>{script}</script></body>")
    page.with_name("clicked.html").write_text(text)
    dump = [*CHROMIUM, "--dump-dom", page.with_name("clicked.html").as_uri()]
    dom = subprocess.run(dump, capture_output=True, text=True, timeout=120, check=True).stdout
    dom = dom[: dom.index("<script>")]
    body = re.search(r"<tbody>(.*?)</tbody>", dom, re.S)[1]
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>.*?</tr>", body, re.S)], dom


CLICK = "document.querySelectorAll('th')[%d].click();"
BY_TOKENS = ["−3", "0", "1", "2x", "5,000", "9.5k", "27k", "1e+05", "0.4M", "1.2B", "-"]


@needs_chromium
def test_a_click_sorts_by_value_and_a_second_one_the_other_way_round(page):
    rows, dom = after(page, CLICK % 0)
    assert [row[0] for row in rows] == BY_TOKENS
    assert 'aria-sort="ascending"' in dom and dom.count('type="search"') == 1  # the table of two rows has no filter
    assert dom.count("sortable") - dom[: dom.index("</style>")].count("sortable") == 3  # that of one row does not sort
    rows, _ = after(page, 2 * (CLICK % 0))
    assert [row[0] for row in rows] == [*reversed(BY_TOKENS[:-1]), "-"]
    rows, _ = after(page, CLICK % 1)
    assert [row[1] for row in rows] == [f"m{number}" for number in range(1, 12)]  # m2 before m10


@needs_chromium
def test_the_filter_leaves_the_rows_that_have_every_word(page):
    script = "const f = document.querySelector('input'); f.value = 'M3 2X'; f.oninput();"
    rows, dom = after(page, script)
    assert rows == [["2x", "m3"]] and dom.count('<tr hidden="">') == len(TOKENS) - 1


def test_the_page_fetches_nothing_and_has_rules_for_the_dark_and_for_print(page):
    text = page.read_text()
    assert not re.search(r"(src|href)=\"(?!data:)[a-z]+:|@import|url\(|fetch\(|XMLHttp", text)
    assert "prefers-color-scheme: dark" in text and "@media print" in text
