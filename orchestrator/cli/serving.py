"""The verb serve: a page in the browser that follows running experiments. No heavy import at the top."""

import secrets
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from scalewright.orchestrator.errors import UserError
from scalewright.orchestrator.serve import LOOPBACK

PACKAGES = ("flask", "plotly")


def serve(
    place: Annotated[
        str | None, typer.Argument(help="A YAML file or an experiment's name; by default all of this folder.")
    ] = None,
    port: Annotated[int, typer.Option(help="The port; 0 for any that is free.", min=0, max=65535)] = 8765,
    host: Annotated[
        str, typer.Option(help="The address to listen at; any but this machine's own asks visitors for a token.")
    ] = LOOPBACK[0],
) -> None:
    """Follow running experiments in the browser, reading only. Example: scalewright serve --port 8765"""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise UserError(f"serve needs {' and '.join(missing)}: pip install 'scalewright[serve]'")
    from scalewright.orchestrator.cli.selection import find, open_study
    from scalewright.orchestrator.jobs.observe import refresh
    from scalewright.orchestrator.serve.app import make_app, make_page_server

    reading = open_study(place)
    pairs = {asked.experiment: asked.compare for asked in [find(place)]} if place else {}
    token = None if host in LOOPBACK else secrets.token_urlsafe(24)
    app = make_app(
        reading.database,
        chosen=reading.experiment,
        refresh=lambda: refresh(reading.study),
        pairs=pairs,
        token=token,
    )
    try:
        server = make_page_server(app, host, port)
    except OSError as error:
        raise UserError(
            f"cannot listen at {host} port {port}: {error.strerror or error}; choose another --port"
        ) from None
    query = f"?token={token}" if token else ""
    shown = f"[{host}]" if ":" in host else host
    print(f"http://{shown}:{server.port}/{query}", flush=True)
    print("Ctrl-C ends it; jobs go on without it", file=sys.stderr)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
