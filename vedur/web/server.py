"""Serves the page: in front, or in a thread beside a worker, which it must never harm."""

from __future__ import annotations

import logging
import socket
import threading

import uvicorn
from starlette.types import ASGIApp

from vedur.errors import StateError
from vedur.threads import Thread

log = logging.getLogger(__name__)

#: Requests at a time; more are told to come back.
_MOST_REQUESTS = 64


class PageServer:
    """One application on one address. The port is taken when the object is made."""

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        self._socket = listen(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        # No log of its own: each request would be a line in the worker's log.
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            limit_concurrency=_MOST_REQUESTS,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=2,
            server_header=False,
            ws="none",
        )
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """Return the URL to open in a browser."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}/"

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM; main thread only."""
        self._server.run(sockets=[self._socket])

    def start(self) -> None:
        """Serve from a thread."""
        self._thread = Thread(target=self._serve, name="vedur-web", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(timeout=10)
        self._socket.close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except Exception as error:
            log.error("the status page ended: %s; the worker goes on without it", error)


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Raises `StateError` with the reason."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(128)
        except OSError:
            listener.close()
            raise
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StateError(
            f'the status page cannot listen on "{host}" port {port}: {reason}; '
            "choose another with --port or web_port"
        ) from error
    return listener
