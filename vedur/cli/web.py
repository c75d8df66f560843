"""The command that serves the status page; it and the worker load the HTTP server."""

from __future__ import annotations

from vedur.cli.grammar import Call
from vedur.config import LondisteSettings
from vedur.errors import UsageError

_PORTS = range(65536)


def web(call: Call, settings: LondisteSettings) -> int:
    from vedur.ops.processes.web import web as ops_web

    port = call.options.port
    if port is not None and port not in _PORTS:
        raise UsageError(f"--port must be between 0 and 65535, got {port}")
    return ops_web(settings, call.options.host, port)
