"""What every answer carries, and which requests are not answered at all.

The page has no scripts, styles or pictures but its own, takes no forms and stands in no frame, and
the headers say so. A request must name one of the hosts that the page is known by: otherwise a
web site could point a name of its own at the loopback address and read the page through a
visitor's browser.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def known_hosts(host: str, more: Collection[str] = ()) -> frozenset[str] | None:
    """Return the host names that a request may ask for; None for any, where the page listens on the
    network."""
    if host in LOOPBACK:
        return frozenset({*LOOPBACK, *(name.lower() for name in more)})
    return frozenset(name.lower() for name in more) or None


def host_name(header: str) -> str:
    """Return the name in a Host header, without the port and without the brackets of IPv6."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        asked = host_name(Headers(scope=scope).get("host", ""))
        if self.hosts is not None and asked not in self.hosts:
            answer = PlainTextResponse("this page is not known by that name\n", status_code=421)
            await answer(scope, receive, with_headers)
            return
        await self.app(scope, receive, with_headers)
