"""The web application: one page, its assets, and JSON that the page asks for again and again. Reads only."""

import hmac
import math
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flask import Flask, Response, abort, jsonify, request
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from scalewright.db.engine import Database
from scalewright.db.errors import DbError
from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.serve import LOOPBACK, state

ASSETS = Path(__file__).parent / "assets"
KINDS = {"live.js": "text/javascript", "live.css": "text/css"}
PLOTLY_S = 3600  # that a browser keeps the plotting library
COOKIE = "scalewright-token"
FRESH_S = 2.0  # age up to which an answer is given again
RULES = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; frame-ancestors 'none'"


class Kept:
    """Answers by name, made again once older than FRESH_S and only when somebody asks."""

    def __init__(self) -> None:
        self.locks: defaultdict[Any, threading.Lock] = defaultdict(threading.Lock)
        self.found: dict[Any, tuple[float, Any]] = {}

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the answer of a key; two who ask for it at once wait for one making."""
        with self.locks[key]:
            made, answer = self.found.get(key, (-math.inf, None))
            if time.monotonic() - made > FRESH_S:
                answer = make()
                self.found[key] = (time.monotonic(), answer)
            return answer


def make_app(
    database: Database,
    *,
    chosen: str | None,
    refresh: Callable[[], object],
    pairs: Mapping[str, Sequence[tuple[str, str]]] | None = None,
    token: str | None = None,
) -> Flask:
    """Make the application over an open database.

    chosen: the experiment shown first. pairs: the comparisons that a file names, by experiment. refresh: brings the
    database up to date. token: who asks must know it, by `?token=` once and by cookie then; None for a page that only
    this machine can reach.
    """
    app = Flask("scalewright", static_folder=None)
    app.json.sort_keys = False  # type: ignore[attr-defined]  # rows have their columns in order
    kept, pairs = Kept(), pairs or {}
    said: dict[str, tuple[int, Any]] = {}  # by experiment: after how many results, what

    @app.before_request
    def guard() -> None:
        if token is None:
            if urlsplit(f"//{request.host}").hostname not in LOOPBACK:  # another site's name for this machine
                abort(403)
            return
        given = request.args.get("token") or request.cookies.get(COOKIE) or ""
        if not hmac.compare_digest(given.encode(), token.encode()):
            abort(Response("this page needs its token: open the address that `scalewright serve` printed\n", 403))

    @app.after_request
    def close(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = RULES
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        if token is not None and request.args.get("token") and response.status_code < 400:
            response.set_cookie(COOKIE, token, httponly=True, samesite="Strict")
        return response

    @app.errorhandler(DbError)
    @app.errorhandler(UserError)
    def refuse(error: Exception) -> tuple[str, int]:
        return f"{error}\n", 503

    def ask(part: str, read: Callable[[Database, str], Any]) -> Response:
        name = request.args.get("experiment", "")
        kept.get("refresh", refresh)
        if name not in kept.get("names", lambda: state.experiment_names(database)):
            abort(404)
        return jsonify(kept.get((part, name), lambda: read(database, name)))

    @app.get("/")
    def page() -> Response:
        return Response((ASSETS / "live.html").read_bytes(), mimetype="text/html")

    @app.get("/assets/<name>")
    def asset(name: str) -> Response:
        if name == "plotly.js":
            kind, found = "text/javascript", plotly()
        elif name in KINDS:
            kind, found = KINDS[name], ASSETS / name
        else:
            abort(404)
        response = Response(found.read_bytes(), mimetype=kind)
        response.cache_control.max_age = PLOTLY_S if name == "plotly.js" else 0
        return response

    @app.get("/api/experiments")
    def experiments() -> Response:
        kept.get("refresh", refresh)
        return jsonify({"chosen": chosen, "names": kept.get("names", lambda: state.experiment_names(database))})

    @app.get("/api/progress")
    def progress() -> Response:
        return ask("progress", state.progress_state)

    @app.get("/api/curves")
    def curves() -> Response:
        return ask("curves", state.curves_state)

    @app.get("/api/losses")
    def losses() -> Response:
        return ask("losses", state.losses_state)

    @app.get("/api/answer")
    def answer() -> Response:
        def once_a_result(db: Database, name: str) -> Any:
            n_done = state.progress_state(db, name)["n_done"]
            if said.get(name, (None, None))[0] != n_done:
                said[name] = (n_done, state.answer_state(db, name, pairs.get(name, ())))
            return said[name][1]

        return ask("answer", once_a_result)

    return app


def plotly() -> Path:
    """Return the plotting library for browsers, which lies in the package `plotly` (imported by nobody)."""
    spec = find_spec("plotly")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"


def make_page_server(app: Flask, host: str, port: int) -> BaseWSGIServer:
    """Bind the address; raises OSError where it is taken or not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as bound:  # werkzeug ends the process where it cannot bind
        return make_server(host, port, app, threaded=True, request_handler=Quiet, fd=bound.fileno())


class Quiet(WSGIRequestHandler):
    """Says nothing of each request: a page asks every two seconds."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""
