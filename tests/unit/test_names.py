from __future__ import annotations

import pickle

import pytest

from vedur import errors
from vedur.errors import UsageError
from vedur.names import QualifiedName, fqname, parse_name, quote_ident, read_name, readings


@pytest.mark.parametrize(
    "text,want",
    [
        ("t", QualifiedName("public", "t")),
        ("s.t", QualifiedName("s", "t")),
        ("s.a.b", QualifiedName("s", "a.b")),
        ('Od"d.Na me', QualifiedName('Od"d', "Na me")),
        ("имя.表", QualifiedName("имя", "表")),
    ],
)
def test_parse_name(text: str, want: QualifiedName) -> None:
    assert parse_name(text) == want


@pytest.mark.parametrize("text", ["", ".t", "s.", "x" * 64, "s." + "я" * 32])
def test_bad_names_say_which(text: str) -> None:
    with pytest.raises(UsageError):
        parse_name(text)


@pytest.mark.parametrize(
    "text,want",
    [
        ("t", ("public.t",)),
        ('"T"', ("public.T", 'public."T"')),
        ('"Weird Schema"."Order"', ("Weird Schema.Order", '"Weird Schema"."Order"')),
        ('s."a.b"', ("s.a.b", 's."a.b"')),
        ('"a""b".c', ('a"b.c', '"a""b".c')),
        ('Od"d.Na me', ('Od"d.Na me',)),
        ('"open.x', ('"open.x',)),
    ],
)
def test_what_a_written_name_can_mean(text: str, want: tuple[str, ...]) -> None:
    assert readings(text) == want
    assert read_name(text) == want[0]


def test_a_schema_with_a_dot_cannot_be_registered() -> None:
    with pytest.raises(UsageError, match="dot in its name"):
        readings('"a.b".c')


def test_quoting() -> None:
    assert parse_name('a"b.c').quoted == '"a""b"."c"'
    assert quote_ident("select") == '"select"'
    with pytest.raises(UsageError):
        quote_ident("a\0b")
    assert fqname("t") == "public.t"


def _classes(cls: type[errors.VedurError]) -> list[type[errors.VedurError]]:
    return [cls, *(c for sub in cls.__subclasses__() for c in _classes(sub))]


TREE = [c for c in _classes(errors.VedurError) if c.__module__ == errors.__name__]


@pytest.mark.parametrize("cls", TREE, ids=lambda c: c.__name__)
def test_errors_pickle_and_have_an_exit_code(cls: type[errors.VedurError]) -> None:
    error = cls('table "a.b" is missing', sqlstate="42P01", code=404)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is cls
    assert (str(back), back.values) == (str(error), error.values)
    assert cls.exit_code > 0
    assert cls.__name__ in (errors.__doc__ or "")
    assert str(cls()) == cls.__doc__
