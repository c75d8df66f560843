"""web: the status page of a node, in front or beside its worker."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from vedur.config import LondisteSettings
from vedur.daemon import Signals, set_title, tell_systemd
from vedur.status.overview import open_reader
from vedur.web.app import make_app
from vedur.web.server import PageServer
from vedur.web.source import Source

log = logging.getLogger(__name__)

#: The port of the command, where the ini names none.
PORT = 8060


@dataclass
class StatusPage:
    """A running page."""

    source: Source
    server: PageServer

    @classmethod
    def start(
        cls, settings: LondisteSettings, host: str | None = None, port: int | None = None
    ) -> StatusPage:
        """Take the port and serve from a thread. Raises `StateError` where the port is taken."""
        host = host or settings.web_host
        source = Source(open_reader(settings, "web"))
        app = make_app(source, max_lag=settings.web_max_lag, host=host, hosts=settings.web_hosts)
        page = cls(source, PageServer(app, host, settings.web_port if port is None else port))
        page.server.start()
        page.source.start()
        log.info("Status page: %s", page.server.address)
        return page

    def stop(self) -> None:
        """End it."""
        self.server.stop()
        self.source.stop()


def web(settings: LondisteSettings, host: str | None = None, port: int | None = None) -> int:
    """Serve the page until told to stop; the exit code."""
    set_title("vedur:", "web", f"({settings.queue_name})")
    signals = Signals()
    signals.install()
    page = StatusPage.start(settings, host, port or settings.web_port or PORT)
    tell_systemd()
    try:
        while not signals.stop.is_set():
            signals.wait(3600.0)
    finally:
        page.stop()
    return 0
