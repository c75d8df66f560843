"""Handlers are found, their arguments checked; what is missing is one clear error."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.labs.handlers import UseHandlers, use_handlers
from vedur.catalog.tables import TableInfo, missing_part
from vedur.cli.main import main
from vedur.errors import ConfigError, InternalError, StateError, UsageError
from vedur.handlers import registry as found_handlers
from vedur.handlers.api import Argument, Handler, Scope
from vedur.handlers.registry import (
    GROUP,
    forget_handlers,
    handler_attr,
    handler_problem,
    parse_stored,
    registry,
    require_handlers,
    resolve,
)
from vedur.threads import working_for

__all__ = ["use_handlers"]


def table(attrs: str | None, facts: tuple[Any, ...] | None = None, local: bool = True) -> TableInfo:
    return TableInfo("public.t", local, "ok", None, attrs, None, None, 0, "public.t", facts)


def stored(handler: str, facts: tuple[Any, ...] | None = None, more: str = "") -> TableInfo:
    from urllib.parse import quote_plus

    return table(f"handler={quote_plus(handler)}{more}", facts)


class Own(Handler):
    name = "own"
    summary = "of a test"
    arguments = (Argument("colour", "of the rows", ("red", "blue"), "red"),)


@pytest.fixture
def own_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("tests_own_handlers")
    module.HANDLERS = (Own,)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize(
    "attrs, known",
    [
        (None, True),
        ("handler=londiste", True),
        ("handler=londiste%28%29", True),
        ("handler=", True),
        ("handler", True),
        ("copy_condition=handler%3D1", True),
        ("handler=londiste%28ignore_truncate%3D1%29", True),
        ("handler=bulk%28method%3D2%29", True),
        ("handler=shard%28key%3Did%29", False),  # nobody has said which shard this is
        ("handler=londiste%28encoding%3Dutf8%29", True),
        ("handler=londiste%28encoding%3Dlatin1%29", False),
        ("handler=dispatch", False),
        ("handler=obfuscate", False),  # no key, no rules
        ("skip_truncate=1&handler=my.own", False),
        ("handler=londiste%28ignore_truncate%3D1", False),
    ],
)
def test_which_handlers_are_known(attrs: str | None, known: bool) -> None:
    assert (handler_problem(table(attrs)) is None) == known
    if known:
        table(attrs).mapping  # noqa: B018
        return
    with pytest.raises(
        StateError, match=r'"public\.t" is registered with handler ".*no rows are mo'
    ):
        require_handlers([table(attrs)])
    with pytest.raises(StateError):
        table(attrs).mapping  # noqa: B018
    require_handlers([table(attrs, local=False)])


@pytest.mark.parametrize(
    "name, args, message",
    [
        ("nope", [], 'unknown handler "nope": there is .*londiste.*shard'),
        ("londiste", ["nope=1"], r"Invalid handler argument: \['nope'\]; .* ignore_truncate"),
        ("londiste", ["ignore_truncate=maybe"], 'is one of 1, true, 0, false, not "maybe"'),
        ("londiste", ["ignore_truncate=1", "ignore_truncate=0"], "given twice"),
        ("transform", [], 'needs argument "function"'),
        ("bulk", ["method=3"], "one of 0, 1, 2"),
    ],
)
def test_arguments_are_checked(name: str, args: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        handler_attr(name, args)


def test_the_stored_form_is_read_back() -> None:
    text = handler_attr("shard", ["hash_expr=a || '&=,'"])
    assert parse_stored(text) == ("shard", {"hash_expr": "a || '&=,'"})
    assert parse_stored(" (a=1,b=2) ") == ("londiste", {"a": "1", "b": "2"})


def test_a_module_brings_handlers(use_handlers: UseHandlers, own_module: ModuleType) -> None:
    use_handlers(handler_modules=(own_module.__name__, "londiste.handlers.bulk"))
    assert registry().find("own") is Own
    found = resolve(stored("own(colour=blue)"))
    assert found is not None and found.handler.argument("colour") == "blue" and found.plain
    assert "colour" in (handler_problem(stored("own(colour=green)")) or "")


@pytest.mark.parametrize(
    "names, message",
    [
        (("no_such_module_of_ours",), 'module "no_such_module_of_ours" .* cannot be loaded: Mod'),
        (("json",), 'module "json" .* has no HANDLERS'),
    ],
)
def test_a_missing_module_stops(
    use_handlers: UseHandlers, names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        use_handlers(handler_modules=names)


def test_a_module_that_is_wrong_stops(
    use_handlers: UseHandlers, own_module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_module.HANDLERS = (int,)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="is no subclass of"):
        use_handlers(handler_modules=(own_module.__name__,))
    monkeypatch.setattr(Own, "name", "shard")
    own_module.HANDLERS = (Own,)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match='handler "shard" is there twice'):
        use_handlers(handler_modules=(own_module.__name__,))


def test_a_map_that_cannot_be_read_stops(use_handlers: UseHandlers, tmp_path: Path) -> None:
    for text, message in (("{", "no JSON|expected"), ("[]", "has no rules")):
        path = tmp_path / "map"
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            use_handlers(obfuscator_map=str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        use_handlers(obfuscator_map=str(tmp_path / "none"))


def test_scopes_become_maps() -> None:
    plain = table(None).mapping
    ignoring = stored("londiste(ignore_truncate=1)").mapping
    assert (plain.operations, ignoring.operations) == ("IUDR", "IUD")
    assert ignoring.unrepairable and not ignoring.uncomparable
    inserts = stored("bulk_direct(event_types=i)").mapping
    assert inserts.operations == "IR" and "history" in inserts.uncomparable
    for handler in ("nop", "vtable", "fake_local", "shard(key=id&disable_replay=1)"):
        assert not stored(handler, (0, 0, 1)).mapping.applies
    assert resolve(stored("bulk")).scope == Scope()  # type: ignore[union-attr]


def test_a_shard_is_a_condition() -> None:
    shard = stored("shard(key=Id)", (1, 3, 4))
    assert shard.mapping.condition == '(coalesce("partconf"."get_hash_raw"("Id"), 0) & 3) = 1'
    own = stored("part(hash_expr=a%2Bb)", (0, 1, 2), "&copy_condition=c")
    assert own.mapping.condition == "(c\n) and ((coalesce((a+b), 0) & 1) = 0\n)"
    renamed = stored("shard(key=a)", (0, 1, 2), "&columns=a%3Db")
    assert renamed.mapping.condition == '(coalesce("partconf"."get_hash_raw"("b"), 0) & 1) = 0'
    named = stored("shard(key=Id&shard_nr=1&shard_count=4)")
    assert named.mapping.condition == shard.mapping.condition  # the node is not asked
    assert resolve(named).mark == ""  # type: ignore[union-attr]
    third = stored("shard(hash_expr=a&shard_nr=2&shard_count=3)")
    assert third.mapping.condition == "((coalesce((a), 0) % 3 + 3) % 3) = 2"


@pytest.mark.parametrize(
    "number, count, message",
    [
        ("1", None, "must be given together"),
        (None, "4", "must be given together"),
        ("2", "2", 'there is no shard "2" of "2"'),
        ("-1", "2", 'there is no shard "-1" of "2"'),
        ("0", "0", "a number from 1 to 1000000"),
        ("0", "2000000", "a number from 1 to 1000000"),
        ("0", "9" * 5000, "a number from 1 to 1000000"),
        ("0", "\u0663", "a number from 1 to 1000000"),
        ("", "2", 'there is no shard "" of "2"'),
    ],
)
def test_a_shard_that_is_none_is_refused(
    number: str | None, count: str | None, message: str
) -> None:
    given = {"key": "id", "shard_nr": number, "shard_count": count}
    with pytest.raises(UsageError, match=message):
        registry().make("shard", "t", {k: v for k, v in given.items() if v is not None})


@pytest.mark.parametrize(
    "facts, message",
    [
        ((1, 2, 3), "power of two"),
        ((4, 3, 4), "power of two"),
        ((None, 3, 4), "must give one row"),
        ((1,), "must give one row"),
    ],
)
def test_senseless_shards_stop(facts: tuple[Any, ...], message: str) -> None:
    assert message in (handler_problem(stored("shard(key=id)", facts)) or "")


def test_a_shard_needs_its_column() -> None:
    assert "key=COLUMN" in (handler_problem(stored("shard", (0, 1, 2))) or "")
    left_out = stored("shard(key=a)", (0, 1, 2), "&columns=b")
    assert "leaves out" in (handler_problem(left_out) or "")


def points(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    point = EntryPoint("own", value, GROUP)
    monkeypatch.setattr(found_handlers, "entry_points", lambda group: [point])


def test_an_installed_package_brings_handlers(
    use_handlers: UseHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    points(monkeypatch, f"{__name__}:Own")
    assert use_handlers().find("own") is Own
    for value, message in (
        ("no_such_package:Own", r"handler \"own\" of an installed package \(no_such_package:Own\)"),
        (f"{__name__}:nothing", "cannot be loaded"),
        ("json:loads", "is no subclass of"),
    ):
        points(monkeypatch, value)
        with pytest.raises(ConfigError, match=message):
            use_handlers()


def test_commands_show_handlers_or_say_why_not(
    use_handlers: UseHandlers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ini = tmp_path / "x.ini"
    text = "[londiste3]\njob_name = x\ndb = dbname=x\nqueue_name = q\n"
    ini.write_text(text)
    use_handlers()  # put back what was there before
    assert main("londiste3", ["-q", str(ini), "show-handlers"]) == 0
    listed = capsys.readouterr().out
    assert "shard - The rows whose hash" in listed and "obfuscate - Masks" in listed
    assert main("londiste3", ["-q", str(ini), "show-handlers", "shard"]) == 0
    told = capsys.readouterr().out
    assert "disable_replay" in told and "(one of 1, true, 0, false; default 0)" in told
    assert "Keys of the ini: shard_hash_func, shard_info_sql" in told
    ini.write_text(f"{text}handler_modules = no_such_module\n")
    assert main("londiste3", ["-q", str(ini), "show-handlers"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert 'handler module "no_such_module" (handler_modules) cannot be loaded' in line


def test_what_a_node_with_a_handler_can_give() -> None:
    """A first copy from a branch needs all rows that are wanted, as they are."""
    whole, shard = table(None).mapping, stored("shard(key=a)", (1, 3, 4))
    assert missing_part(stored("bulk"), whole) == ""
    assert "rows where" in missing_part(shard, whole)
    assert missing_part(shard, shard.mapping) == ""
    assert "rows where" in missing_part(shard, stored("shard(key=a)", (2, 3, 4)).mapping)
    keeps = stored("londiste(ignore_truncate=1)")
    assert "ignore_truncate" in missing_part(keeps, whole)
    assert missing_part(keeps, keeps.mapping) == missing_part(table(None), keeps.mapping) == ""
    for other in ("nop", "dispatch", "transform(function=tests.labs.transforms:same)"):
        assert missing_part(stored(other), whole) == f"what handler {other} makes of it"


def test_jobs_of_one_process_have_their_own_handlers(use_handlers: UseHandlers) -> None:
    """Rows of one queue must not pass through what the ini of another says."""
    for job in ("a", "b"):
        with working_for(job):
            use_handlers(shard_hash_func=f"hash_of_{job}")
    try:
        for job in ("a", "b"):
            with working_for(job):
                assert registry().options["shard_hash_func"] == f"hash_of_{job}"
        with working_for("c"), pytest.raises(InternalError, match='handlers of job "c"'):
            registry()
    finally:
        forget_handlers("a")
        forget_handlers("b")


def test_who_works_for_no_job_gets_no_handlers_of_one(use_handlers: UseHandlers) -> None:
    forget_handlers("")
    with working_for("a"):
        use_handlers()
    try:
        with pytest.raises(InternalError, match='handlers of job ""'):
            registry()
    finally:
        forget_handlers("a")
