"""The page of `serve`: what it says is what the verbs say, it changes nothing, and strangers get nothing."""

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from scalewright.db import frames
from scalewright.db.engine import open_database
from scalewright.db.errors import DbError
from scalewright.orchestrator.cli import run
from scalewright.orchestrator.serve.app import make_app, plotly
from scalewright.orchestrator.study import Study

from tiny_study import YAML, write_study  # isort: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    write_study(folder, YAML + "compare: [gpt+ over pre-ln]\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("SCALEWRIGHT_DB", raising=False)
        assert run(["submit", "--executor", "debug"]) == 0
    return Study.at(folder)


@pytest.fixture
def database(study):
    opened = open_database(study.database, create=False)
    yield opened
    opened.close()


@pytest.fixture
def page(database):
    return make_app(database, chosen="tiny", refresh=lambda: None, pairs={"tiny": [("gpt+", "pre-ln")]}).test_client()


def test_the_page_and_its_parts_come_from_this_machine_alone(page):
    text = page.get("/").get_data(as_text=True)
    for asset in re.findall(r'(?:src|href)="([^"]+)"', text):
        if not asset.startswith("data:"):
            assert page.get(f"/{asset}").status_code == 200, asset
    assert "http" not in re.sub(r"<!doctype html>", "", text)
    assert page.get("/assets/plotly.js").data == plotly().read_bytes()
    assert "default-src 'self'" in page.get("/").headers["Content-Security-Policy"]


def test_what_it_says_is_what_the_verbs_say(page, study, database, capsys, monkeypatch):
    monkeypatch.chdir(study.root)
    assert run(["status", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    shown = page.get("/api/progress?experiment=tiny").json
    assert shown["headline"] == status["headline"] and shown["n_done"] == 4 and shown["share"] == 1.0
    assert [list(row) for row in shown["rows"]] == [list(row) for row in status["rows"]], "columns in their order"
    assert [(row["method"], row["done"]) for row in shown["rows"]] == [("gpt+", "2/2"), ("pre-ln", "2/2")]

    final = frames.final_losses(database, "tiny").set_index("run_id")
    losses = page.get("/api/losses?experiment=tiny").json
    assert [method["label"] for method in losses] == ["GPT+", "Pre-LN"]
    assert sorted(loss for method in losses for loss in method["loss"]) == sorted(final["loss_nats"])
    curves = page.get("/api/curves?experiment=tiny").json
    assert {curve["run_id"] for curve in curves} == set(final.index)
    for curve in curves:
        stored = frames.curves(database, [curve["run_id"]])
        assert curve["n_tokens"] == stored["n_tokens"].tolist() and curve["loss"] == stored["value"].tolist()
    answer = page.get("/api/answer?experiment=tiny").json
    assert len(answer["sentences"]) == 1 and "GPT+ over Pre-LN" in answer["sentences"][0]
    assert answer["forecasts"] == []


def test_nothing_can_be_changed_and_what_is_not_there_is_said(page, study):
    before = Path(study.database).read_bytes()
    for part in ("progress", "curves", "losses", "answer"):
        assert page.get(f"/api/{part}?experiment=tiny").status_code == 200
        assert page.get(f"/api/{part}?experiment=nope").status_code == 404
        assert page.post(f"/api/{part}?experiment=tiny").status_code == 405
    assert page.get("/assets/../app.py").status_code == 404
    assert page.delete("/").status_code == 405
    assert Path(study.database).read_bytes() == before


def test_a_database_that_does_not_answer_is_one_line_and_no_traceback(database, caplog):
    def refuse():
        raise DbError("the database is locked by another command")

    answer = make_app(database, chosen=None, refresh=refuse).test_client().get("/api/progress?experiment=tiny")
    assert (answer.status_code, answer.get_data(as_text=True)) == (503, "the database is locked by another command\n")
    assert "Traceback" not in caplog.text and not caplog.records


def test_a_site_that_names_itself_as_this_machine_gets_nothing(page):
    assert page.get("/", headers={"Host": "evil.example:8765"}).status_code == 403
    assert page.get("/", headers={"Host": "localhost:8765"}).status_code == 200
    assert page.get("/", headers={"Host": "[::1]:8765"}).status_code == 200


def test_another_address_asks_for_the_token_once_and_then_by_cookie(database):
    page = make_app(database, chosen=None, refresh=lambda: None, token="secret").test_client()
    elsewhere = {"headers": {"Host": "cluster.example:8765"}}
    for path in ("/", "/?token=wrong", "/api/experiments", "/assets/live.js"):
        assert page.get(path, **elsewhere).status_code == 403, path
    first = page.get("/?token=secret", **elsewhere)
    assert first.status_code == 200 and "HttpOnly" in first.headers["Set-Cookie"]
    assert page.get("/api/experiments", **elsewhere).status_code == 200


@pytest.fixture
def served(study):
    """The address of a page as the command serves it; ended by Ctrl-C."""
    program = [sys.executable, "-m", "scalewright", "serve", "experiments.yaml", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # a shell's background job is deaf
    with subprocess.Popen(program, cwd=study.root, **pipes, **heard) as process:
        try:
            yield process.stdout.readline().strip()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert said == "Ctrl-C ends it; jobs go on without it\n"


def test_the_command_serves_until_ctrl_c_and_a_port_that_is_taken_is_one_line(served, capsys, study, monkeypatch):
    assert served.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(served + "api/experiments", timeout=60) as answer:
        assert json.load(answer) == {"chosen": "tiny", "names": ["tiny"]}
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(served + "api/progress", timeout=60)
    monkeypatch.chdir(study.root)
    port = served.rstrip("/").rpartition(":")[2]
    assert run(["serve", "--port", port]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and f"cannot listen at 127.0.0.1 port {port}" in err


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_shows_the_progress_and_both_pictures(served):
    dump = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
    page = subprocess.run([*dump, served], capture_output=True, text=True, timeout=300).stdout
    assert "4/4 runs done" in page
    assert page.count('class="main-svg"') >= 2
    assert re.search(r"<td[^>]*>pre-ln</td>", page)
    assert "no answer" not in page
