"""Connect strings: defaults that we add, and passwords that we take out."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from vedur.errors import ConfigError

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
    """The parameters of a libpq connect string, key/value or URI."""
    try:
        return {k: str(v) for k, v in conninfo_to_dict(connstr).items() if v is not None}
    except psycopg.ProgrammingError as error:
        raise ConfigError(
            f"connect string cannot be parsed: {str(error).strip().splitlines()[0]}"
        ) from None


def with_defaults(connstr: str, application_name: str) -> str:
    """The connect string plus what it leaves open and we care about."""
    params = parse(connstr)
    merged = {"application_name": application_name, **_DEFAULTS, **params}
    return make_conninfo(**merged)


def with_params(connstr: str, **params: str | None) -> str:
    """The connect string with some parameters replaced; None removes one."""
    merged = {**parse(connstr), **params}
    return make_conninfo(**{key: value for key, value in merged.items() if value is not None})


def without_secrets(connstr: str) -> str:
    """The connect string without passwords, safe to print and store."""
    params = {k: v for k, v in parse(connstr).items() if k not in _SECRET_KEYS}
    return make_conninfo(**params)


def cut_password(connstr: str) -> str:
    """As upstream prints it: cut at the word `password`, the rest shown as ` [...]`."""
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
    """Whether other machines could use it: it names a host or a service."""
    params = parse(connstr)
    return bool(params.keys() & {"host", "hostaddr", "service"})
