from __future__ import annotations

import pytest

from vedur.db.conninfo import (
    cut_password,
    has_host,
    parse,
    with_defaults,
    with_params,
    without_secrets,
)
from vedur.errors import ConfigError

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "connstr",
    [
        f"host=h port=1 user=u dbname=d password={SECRET}",
        f"password={SECRET} host=h",
        f"host=h password='{SECRET}'",
        f"host=h password = '{SECRET}' user=u",
        f"postgresql://u:{SECRET}@h:1/d",
        f"postgresql://u@h:1/d?password={SECRET}",
        f"host=h sslpassword={SECRET}",
        f"host='it''s' password={SECRET}",
        f"host=h password={SECRET} nonsense",
    ],
)
def test_no_form_shows_the_password(connstr: str) -> None:
    assert SECRET not in cut_password(connstr)


def test_cut_as_the_predecessor_prints_it() -> None:
    got = cut_password("host=172.16.3.33 port=1919 user=postgres dbname=d password=postgres")
    assert got == "host=172.16.3.33 port=1919 user=postgres dbname=d  [...]"
    assert cut_password("host=h dbname=d") == "host=h dbname=d"


def test_defaults_never_override() -> None:
    got = parse(with_defaults("host=h connect_timeout=3", "vedur test"))
    assert got["connect_timeout"] == "3"
    assert got["application_name"] == "vedur test"
    assert parse(with_defaults("host=h application_name=mine", "x"))["application_name"] == "mine"


def test_without_secrets_keeps_the_rest() -> None:
    assert parse(without_secrets(f"host=h user=u password={SECRET}")) == {"host": "h", "user": "u"}


def test_with_params() -> None:
    assert parse(with_params("host=h dbname=a", dbname="b")) == {"host": "h", "dbname": "b"}
    assert parse(with_params("host=h dbname=a", dbname=None)) == {"host": "h"}


def test_has_host() -> None:
    assert has_host("host=h") and has_host("service=x") and not has_host("dbname=d")


def test_nonsense_is_a_config_error_without_the_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"host=h password={SECRET} nonsense")
    assert SECRET not in str(caught.value)
