"""Connect strings: defaults that we add, and passwords that we take out."""

from __future__ import annotations

from collections.abc import Collection

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from vedur.errors import ConfigError, ConnectError, first_line

#: A peer that vanished without a FIN is noticed after about a minute instead of two hours.
_DEFAULTS: dict[str, str] = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    # keepalives do not probe while sent bytes wait for an answer: this does
    "tcp_user_timeout": "60000",
}

_SECRET_KEYS = ("password", "sslpassword", "oauth_client_secret")


def parse(connstr: str) -> dict[str, str]:
    """Parse a libpq connect string, key/value or URI, into its parameters."""
    try:
        return {k: str(v) for k, v in conninfo_to_dict(connstr).items() if v is not None}
    except psycopg.ProgrammingError as error:
        raise ConfigError(f"connect string cannot be parsed: {first_line(error)}") from None


def with_defaults(connstr: str, application_name: str) -> str:
    """Return the connect string with our defaults for what it leaves open."""
    params = parse(connstr)
    merged = {"application_name": application_name, **_DEFAULTS, **params}
    return make_conninfo(**merged)


def with_params(connstr: str, **params: str | None) -> str:
    """Return the connect string with some parameters replaced; None removes one."""
    merged = {**parse(connstr), **params}
    return make_conninfo(**{key: value for key, value in merged.items() if value is not None})


#: What a location must not say: it comes from a table of the database or from an event of the root.
#: These would write or read a file here, or hand a ticket of ours to the server that it names.
_NOT_IN_LOCATIONS = ("sslkeylogfile", "servicefile", "gssdelegation", "replication")

_REQUIRE_AUTH = 160000  # the first libpq that knows the parameter


def remote(location: str, extra: str, hosts: Collection[str] = ()) -> str:
    """Return the connect string of another node: its location, with what the ini adds for other
    nodes.

    Locations come from the database, so whoever writes them there chooses the server that is told a
    password of `extra`. With `hosts` (ini: remote_hosts) only these are connected to. Without, the
    password is at least never sent as clear text, unless `extra` itself says what it requires.
    """
    params = parse(location)
    for name in _NOT_IN_LOCATIONS:
        if name in params:
            raise ConnectError(
                f'location "{without_secrets(location)}" has "{name}", which a location must not '
                "have: register it again without, or put it into remote_extra_connstr"
            )
    if hosts:
        _require_known(location, params, hosts)
    more = parse(extra) if extra else {}
    if (
        any(key in more for key in _SECRET_KEYS)
        and not hosts
        and "require_auth" not in more
        and psycopg.pq.version() >= _REQUIRE_AUTH
    ):
        more["require_auth"] = "!password"
    return make_conninfo(**(params | more)) if more else location


def _require_known(location: str, params: dict[str, str], hosts: Collection[str]) -> None:
    named = [*params.get("host", "localhost").split(",")]
    if "hostaddr" in params:
        named += params["hostaddr"].split(",")
    unknown = [name for name in named if (name or "localhost") not in hosts]
    if "service" in params:  # whose host could be any
        unknown.append(f"service={params['service']}")
    if unknown:
        raise ConnectError(
            f'location "{without_secrets(location)}" names "{unknown[0]}", which is not in '
            "remote_hosts of the ini: add it there if it is right, else correct the location"
        )


def without_secrets(connstr: str) -> str:
    """Return the connect string without passwords, safe to print and store."""
    params = {k: v for k, v in parse(connstr).items() if k not in _SECRET_KEYS}
    return make_conninfo(**params)


def cut_password(connstr: str) -> str:
    """Cut a connect string as upstream prints it: at the word `password`, the rest shown as `
    [...]`."""
    try:
        has_secret = any(k in parse(connstr) for k in _SECRET_KEYS)
    except ConfigError:
        return "[...]"
    if not has_secret:
        return connstr
    head, word, _ = connstr.partition("password")
    if word and "://" not in connstr and "'" not in head:
        return f"{head} [...]"
    return f"{without_secrets(connstr)}  [...]"


def has_host(connstr: str) -> bool:
    """Return True if other machines could use it: it names a host or a service."""
    params = parse(connstr)
    return bool(params.keys() & {"host", "hostaddr", "service"})
