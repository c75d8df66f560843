"""The addresses of the status page. GET and HEAD only; every page is JSON too.

    /                 the set: attention, picture, nodes, history of lag      also /index.json
    /nodes/NAME       one node: tables, copies, batches, queue, ...            also /nodes/NAME.json
    /healthz          200 while the process lives and the local database answers, else 503
    /readyz           200 while the local node may be read from, else 503 and the reasons
    /metrics          for Prometheus

JSON comes for `.json` or for `Accept: application/json`; `stale` in it says why what is shown is
old. Endpoints are plain functions, which the framework runs in threads: they wait for databases.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from vedur import __version__
from vedur.status.overview import Overview, node_dict
from vedur.status.problems import MAX_LAG, Problem, node_problems, problems, ready, unreachable
from vedur.web import metrics, plot, topology, words
from vedur.web.guard import LOOPBACK, Guard, known_hosts
from vedur.web.source import Look, Sample, Source

log = logging.getLogger(__name__)

#: Seconds between two refreshes of an open page.
REFRESH = 5
_JSON = "application/json"


@dataclass(frozen=True)
class Site:
    """What the endpoints need."""

    source: Source
    templates: Environment
    max_lag: float

    # -- pages ----------------------------------------------------------------------------------

    def index(self, request: Request) -> Response:
        """Answer with the page of the whole set, as HTML or JSON."""
        look = self.source.look()
        overview = look.overview
        if overview is None:
            return self._failed(request, 503, look.failure or "nothing is known yet")
        open_problems = problems(overview, self.max_lag)
        samples = self.source.samples
        if _wants_json(request):
            value = (
                overview.as_dict() | _about(look, open_problems) | {"history": _history(samples)}
            )
            return _json(value, 200 if look.failure is None else 503)
        states = _states(overview, open_problems)
        return self._page(
            "overview.html",
            request,
            look,
            here="/",
            overview=overview,
            problems=open_problems,
            states=states,
            picture=topology.draw(overview, states),
            plot=plot.draw(samples),
        )

    def node(self, request: Request) -> Response:
        """Answer with the page of one node, as HTML or JSON."""
        look = self.source.look()
        overview = look.overview
        if overview is None:
            return self._failed(request, 503, look.failure or "nothing is known yet")
        name = request.path_params["name"]
        node = overview.node(name)
        as_json = _wants_json(request)
        if node is None and name.endswith(".json"):
            node, as_json = overview.node(name.removesuffix(".json")), True
        if node is None:
            return self._failed(request, 404, "there is no such node")
        open_problems = list(node_problems(node, self.max_lag, unreachable(overview)))
        if as_json:
            value = node_dict(node) | _about(look, open_problems)
            return _json(value, 200 if look.failure is None else 503)
        states = _states(overview, problems(overview, self.max_lag))
        return self._page(
            "node.html",
            request,
            look,
            here=_address(node.name),
            overview=overview,
            node=node,
            problems=open_problems,
            states=states,
        )

    # -- for machines ---------------------------------------------------------------------------

    def healthz(self, _request: Request) -> Response:
        """Answer 200 while the local database answers, else 503."""
        failure = self.source.ping()
        if failure is not None:
            return _json({"status": "fail", "reasons": [failure]}, 503)
        return _json({"status": "ok"}, 200)

    def readyz(self, _request: Request) -> Response:
        """Answer 200 while the local node may be read from, else 503 with the reasons."""
        look = self.source.look()
        if look.overview is None or look.failure is not None:
            return _json({"status": "fail", "reasons": [look.failure]}, 503)
        reasons = ready(look.overview, self.max_lag)
        return _json(
            {"status": "fail" if reasons else "ok", "reasons": reasons}, 503 if reasons else 200
        )

    def metrics(self, request: Request) -> Response:
        """Answer with the metrics for Prometheus."""
        accept = request.headers.get("accept", "")
        body, content_type = metrics.render(self.source.look(), self.max_lag, accept)
        return Response(body, headers={"Content-Type": content_type})

    # -- answers --------------------------------------------------------------------------------

    def _page(self, name: str, request: Request, look: Look, **values: Any) -> Response:
        text = self.templates.get_template(name).render(
            look=look,
            refresh=None if request.query_params.get("refresh") == "off" else REFRESH,
            version=__version__,
            max_lag=self.max_lag,
            **values,
        )
        return HTMLResponse(text, 200 if look.failure is None else 503)

    def _failed(self, request: Request, code: int, message: str) -> Response:
        if _wants_json(request) or request.url.path.endswith(".json"):
            return _json({"status": "fail", "reasons": [message]}, code)
        text = self.templates.get_template("failed.html").render(
            message=message, refresh=REFRESH if code == 503 else None, version=__version__
        )
        return HTMLResponse(text, code)

    def refused(self, request: Request, error: Exception) -> Response:
        """Answer a request for a wrong address or with a wrong method."""
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            return self._failed(request, 404, "there is no page at this address")
        headers = dict(error.headers or {})
        return PlainTextResponse(f"{error.detail}\n", error.status_code, headers)

    def broken(self, request: Request, error: Exception) -> Response:
        """Log a defect of the page; the visitor gets no details."""
        log.error("BUG: status page %s: %r", request.url.path, error)
        return PlainTextResponse("the page failed; the log says why\n", 500)


def make_app(
    source: Source,
    *,
    max_lag: float = MAX_LAG,
    host: str = LOOPBACK[1],
    hosts: Collection[str] = (),
) -> ASGIApp:
    """Build the application. It listens on `host`; `hosts` are further names under which it is
    reached."""
    site = Site(source, _templates(), max_lag)
    static = StaticFiles(directory=Path(__file__).parent / "static")
    app = Starlette(
        routes=[
            Route("/", site.index),
            Route("/index.json", site.index),
            Route("/nodes/{name:path}", site.node),
            Route("/healthz", site.healthz),
            Route("/readyz", site.readyz),
            Route("/metrics", site.metrics),
            Mount("/static", static),
        ],
        exception_handlers={HTTPException: site.refused, Exception: site.broken},
    )
    # around everything, answers to defects included
    return Guard(app, known_hosts(host, hosts))


def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("vedur.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = ("count", "rate", "seconds", "size", "server", "cut")
    environment.filters.update({name: getattr(words, name) for name in filters})
    environment.filters["address"] = _address
    environment.globals.update(percent=words.percent, plot_size=plot, box=topology)
    return environment


def _address(node: str) -> str:
    return f"/nodes/{quote(node, safe='')}"


def _wants_json(request: Request) -> bool:
    if request.url.path == "/index.json":
        return True
    accept = request.headers.get("accept", "")
    return _JSON in accept and "text/html" not in accept


def _json(value: Any, code: int) -> Response:
    body = json.dumps(value, default=str, ensure_ascii=False, indent=1)
    return Response(body + "\n", code, media_type=_JSON)


def _about(look: Look, open_problems: list[Problem]) -> dict[str, Any]:
    return {"stale": look.failure, "problems": [asdict(problem) for problem in open_problems]}


def _history(samples: list[Sample]) -> list[dict[str, Any]]:
    return [
        {"at": sample.at.isoformat(timespec="seconds"), "lag": sample.lags} for sample in samples
    ]


def _states(overview: Overview, open_problems: list[Problem]) -> dict[str, str]:
    """Return ok, warn or fail for each node; `open_problems` has failures first."""
    states = {node.name: "ok" for node in overview.nodes}
    for problem in reversed(open_problems):
        states[problem.node] = str(problem.severity)
    return states
