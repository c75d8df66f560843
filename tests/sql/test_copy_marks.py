"""What first copies write on the node that they read from."""

from __future__ import annotations

import pytest

from vedur import db as vdb
from vedur.errors import PrivilegeError

MARK = "select vedur.mark_copies('q', %s, %s)"
GET = "select vedur.get_copy_mark('q', %s)"
SUB = """
select s.sub_id from pgq.subscription s join pgq.consumer c on c.co_id = s.sub_consumer
where c.co_name = %s
"""


@pytest.fixture
def queue(db: vdb.Database) -> vdb.Database:
    """A queue with two consumers, beside another one."""
    for name in ("q", "other"):
        db.execute("select pgq.create_queue(%s)", [name])
    for name, consumer in (("q", "a.copy.t"), ("q", "a.copy.u"), ("other", "b")):
        db.execute("select pgq.register_consumer(%s, %s)", [name, consumer])
    return db


def test_marks_belong_to_subscriptions_of_the_queue(queue: vdb.Database) -> None:
    subs = [queue.value(SUB, [name]) for name in ("a.copy.t", "a.copy.u", "b")]
    assert queue.value(MARK, [[*subs, 9999], "one"]) == 2
    assert [queue.value(GET, [name]) for name in ("a.copy.t", "a.copy.u", "b")] == [
        "one", "one", None
    ]  # fmt: skip
    assert queue.value(MARK, [subs[:1], "two"]) == 1
    assert [queue.value(GET, [name]) for name in ("a.copy.t", "a.copy.u")] == ["two", "one"]
    # another one of the same name is another one
    queue.execute("select pgq.unregister_consumer('q', 'a.copy.t')")
    queue.execute("select pgq.register_consumer('q', 'a.copy.t')")
    assert queue.value(GET, ["a.copy.t"]) is None


def test_marks_of_subscriptions_that_are_gone_are_removed(queue: vdb.Database) -> None:
    sub = queue.value(SUB, ["a.copy.u"])
    queue.execute("insert into vedur.copy_mark values (9999, 'old', now() - interval '2 days')")
    queue.execute("insert into vedur.copy_mark values (9998, 'new', now())")
    queue.value(MARK, [[sub], "one"])
    queue.execute("update vedur.copy_mark set marked_at = now() - interval '2 days'")
    queue.value(MARK, [[], "none"])
    assert [row[0] for row in queue.query("select sub_id from vedur.copy_mark")] == [sub]


@pytest.mark.parametrize("role", ["pgq_reader", "pgq_admin", "londiste_reader", "londiste_writer"])
def test_who_copies_may_mark(queue: vdb.Database, role: str) -> None:
    sub = queue.value(SUB, ["a.copy.t"])
    queue.execute(f"set local role {role}")
    assert queue.value(MARK, [[sub], "one"]) == 1
    assert queue.value(GET, ["a.copy.t"]) == "one"


def test_a_writer_may_not(queue: vdb.Database) -> None:
    queue.execute("set local role pgq_writer")
    for text in (
        "select vedur.mark_copies('q', '{}', 'x')",
        "select vedur.get_copy_mark('q', 'c')",
    ):
        with pytest.raises(PrivilegeError), queue.transaction():
            queue.execute(text)
