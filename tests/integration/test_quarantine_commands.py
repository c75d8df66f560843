"""The commands about refused events, typed as an operator types them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_quarantine_events import REFUSALS, fill, key, two_tables
from tests.labs.in_process import quick_leaf
from tests.labs.leaf import Leaf
from tests.labs.pair import QUEUE
from vedur import db as vdb
from vedur.change.attrs import decode_attrs
from vedur.cli.main import main
from vedur.errors import VedurError
from vedur.ops.quarantine import replay as ops

__all__ = ["quick_leaf"]


@pytest.fixture
def leaf(quick_leaf: Callable[..., Leaf], monkeypatch: pytest.MonkeyPatch) -> Leaf:
    made = quick_leaf()
    two_tables(made)
    monkeypatch.setattr(ops, "start_spark", lambda _session: object())
    monkeypatch.setattr(ops, "end_spark", lambda _spark: None)
    return made


@pytest.fixture
def run(
    leaf: Leaf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    ini = tmp_path / "dst.ini"
    ini.write_text(f"[londiste3]\ndb = {leaf.leaf.connstr}\nqueue_name = {QUEUE}\n")

    def call(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main("vedur", ["-q", str(ini), *words])
        said = capsys.readouterr()
        return code, said.out + said.err

    return call


def test_an_operator_gets_along(leaf: Leaf, run: Callable[..., tuple[int, str]]) -> None:
    assert run("errors") == (0, "")
    leaf.leaf.execute(REFUSALS["check"].plant)
    fill(leaf, "(13, 'bad', 1)")
    leaf.pair.tick()
    with pytest.raises(VedurError):
        leaf.worker.work()
    event = leaf.leaf.value("select ev_id from vedur.replay_error")
    code, text = run("errors")
    assert code == 1
    assert "public.t: an event is refused" in text and "(23514)" in text
    assert f"event:  {event}, insert" in text and f"key:    {key(13)}" in text
    assert f"dst.ini skip --event={event} --reason=TEXT" in text
    assert "next:   fix the table; the worker retries by itself" in text
    (said,) = json.loads(run("errors", "--json")[1])
    assert (said["ev_id"], said["sqlstate"], said["table"]) == (event, "23514", "public.t")

    code, text = run("skip", f"--event={event}")
    assert code == 1 and "needs --reason" in text
    assert run("skip", f"--event={event}", "--reason=ticket 12")[0] == 0
    leaf.catch_up()

    code, text = run("quarantine", "list")
    assert code == 0 and "ticket 12" in text and "skipped" in text
    (row,) = json.loads(run("quarantine", "list", "--table=t", "--json")[1])
    assert (row["ev_id"], row["decided_by"]) == (event, leaf.leaf.value("select session_user"))
    assert json.loads(run("quarantine", "list", "--table=other", "--json")[1]) == []
    code, text = run("quarantine", "show", str(row["id"]))
    assert code == 0 and '"bad"' in text
    code, text = run("quarantine", "replay")
    assert code == 1 and "no_bad" in text  # it is refused as before
    code, text = run("quarantine", "drop", str(row["id"]), "--reason=x")
    assert code == 1 and "say --yes" in text
    leaf.leaf.execute(REFUSALS["check"].mend)
    (done,) = json.loads(run("quarantine", "replay", str(row["id"]), "--json")[1])
    assert done == {"table": "public.t", "applied": 1, "stayed": 0, "error": None}
    leaf.same("t")
    assert run("errors") == (0, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("quarantine", "burn"), "can list, show, replay and drop"),
        (("quarantine", "drop", "all"), "expects numbers"),
        (("quarantine", "drop", "1", "--reason=x", "--yes"), "no such event in quarantine"),
        (("quarantine", "replay", "1"), "no such event in quarantine"),
        (("quarantine", "show", "1"), "there is no event 1 in quarantine"),
        (("skip", "--event=1", "--tick=1", "--reason=x"), "either --event=N or --tick=N"),
        (("change-table", "t"), "needs --on-error=POLICY"),
        (("change-table", "t", "--on-error=hope"), "one of stop, quarantine-row"),
    ],
)
def test_mistakes_are_one_line(
    run: Callable[..., tuple[int, str]], words: tuple[str, ...], message: str
) -> None:
    code, text = run(*words)
    assert code and message in text and "Traceback" not in text


def test_a_policy_is_stored_with_the_table(leaf: Leaf, run: Callable[..., tuple[int, str]]) -> None:
    def attrs() -> Any:
        return leaf.leaf.value(
            "select table_attrs from londiste.table_info where table_name = 'public.t'"
        )

    assert run("change-table", "t", "--on-error=quarantine-table")[0] == 0
    assert attrs() == "on_error=quarantine-table"
    assert run("change-table", "t", "--on-error=default")[0] == 0
    assert attrs() is None


def test_a_policy_does_not_undo_what_another_command_stores_meanwhile(
    leaf: Leaf, run: Callable[..., tuple[int, str]]
) -> None:
    """change-filter commits between the moment when change-table looks and when it writes."""
    waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
    text = "select * from londiste.local_set_table_attrs(%s, 'public.t', %s)"
    said = []
    with (
        vdb.connect(leaf.leaf.connstr) as other,
        vdb.connect(leaf.leaf.connstr, autocommit=True) as look,
    ):
        other.query(text, [QUEUE, "copy_condition=id+%3c+5"])
        thread = threading.Thread(
            target=lambda: said.append(run("change-table", "t", "--on-error=quarantine-row"))
        )
        thread.start()
        deadline = time.monotonic() + 60
        while not look.value(f"{waits} and datname = current_database()"):
            assert time.monotonic() < deadline and thread.is_alive(), said
            time.sleep(0.02)
        other.commit()
        thread.join(60)
    assert said[0][0] == 0
    stored = leaf.leaf.value(
        "select table_attrs from londiste.table_info where table_name = 'public.t'"
    )
    assert decode_attrs(stored) == {"copy_condition": "id < 5", "on_error": "quarantine-row"}
