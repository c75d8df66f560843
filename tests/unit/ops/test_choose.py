"""Names and globs choose from a list."""

from __future__ import annotations

import logging

import pytest

from vedur.errors import UsageError
from vedur.ops.session import choose


def test_choose_names_and_globs() -> None:
    names = ["public.a", "public.b", "s.a", "s.ab"]
    assert choose(["s.*"], names) == ["s.a", "s.ab"]
    assert choose(["?"], names) == ["public.a", "public.b"]
    assert choose(["s.a", "s.*", "a"], names) == ["s.a", "s.ab", "public.a"]
    assert choose([], names, everything=True) == names
    assert choose(["zz*"], names) == []


def test_choose_reads_names_as_sql_writes_them() -> None:
    names = ["Weird Schema.Order", "Weird Schema.x*", "Weird Schema.xy", 'public."q"', "public.q"]
    assert choose(['"Weird Schema"."Order"'], names) == ["Weird Schema.Order"]
    assert choose(["Weird Schema.Order"], names) == ["Weird Schema.Order"]
    assert choose(['"Weird Schema".x*'], names) == ["Weird Schema.x*", "Weird Schema.xy"]
    assert choose(['"Weird Schema"."x*"'], names) == ["Weird Schema.x*"]
    assert choose(['"""q"""'], names) == ['public."q"']
    assert choose(['"q"'], ['public."q"']) == ['public."q"']
    with pytest.raises(UsageError, match="can mean"):
        choose(['"q"'], names)


def test_choose_says_what_is_not_there(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(UsageError, match="Cannot proceed"):
        choose(["zz"], ["public.a"])
    assert choose(["zz", "a"], ["public.a"], skip_missing=True) == ["public.a"]
    assert choose(["b"], ["public.a"], done={"public.b"}) == []
    assert caplog.messages == [
        "public.zz not available",
        "public.zz not available",
        "public.b already processed",
    ]
