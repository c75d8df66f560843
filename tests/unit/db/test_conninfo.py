from __future__ import annotations

import pytest

from vedur.db.conninfo import (
    cut_password,
    has_host,
    parse,
    remote,
    with_defaults,
    with_params,
    without_secrets,
)
from vedur.errors import ConfigError, ConnectError

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


def test_a_secret_goes_to_hosts_that_the_ini_names() -> None:
    extra = "user=w password=hunter2 sslmode=verify-full"
    hosts = ("db1", "10.0.0.1", "localhost")
    for good in (
        "host=db1 dbname=x",
        "dbname=x",
        "host=db1 hostaddr=10.0.0.1",
        "host=db1,localhost",
    ):
        assert parse(remote(good, extra, hosts)) == parse(good) | parse(extra)
    for bad in (
        "host=evil dbname=x password=own",
        "host=db1 hostaddr=6.6.6.6",
        "host=db1,evil",
        "service=evil",
        "host=db1 service=evil",
        "host=/tmp/evil",
        "postgresql://evil/x",
    ):
        with pytest.raises(ConnectError, match="remote_hosts") as caught:
            remote(bad, extra, hosts)
        assert "hunter2" not in str(caught.value) and "own" not in str(caught.value)
        assert parse(remote(bad, extra)), "no list, no limit"


def test_a_secret_is_not_sent_as_clear_text_to_just_anybody() -> None:
    secret, plain = "password=hunter2", "user=w sslmode=require"
    assert parse(remote("host=a", secret))["require_auth"] == "!password"
    assert "require_auth" not in parse(remote("host=a", plain))
    assert "require_auth" not in parse(remote("host=a", secret, ("a",)))
    assert parse(remote("host=a", secret + " require_auth=password"))["require_auth"] == "password"
    # nor can a location say otherwise, or weaken what the ini says of TLS
    assert parse(remote("host=a require_auth=password", secret))["require_auth"] == "!password"
    strong = remote("host=a sslmode=disable", "sslmode=verify-full")
    assert parse(strong)["sslmode"] == "verify-full"
    assert remote("host=a", "") == "host=a"


@pytest.mark.parametrize("word", ["sslkeylogfile=/etc/x", "gssdelegation=1", "replication=true"])
def test_what_a_location_must_not_say(word: str) -> None:
    with pytest.raises(ConnectError, match=word.split("=")[0]):
        remote(f"host=a {word}", "")
