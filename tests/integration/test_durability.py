"""What a position relies on is on disk: sessions of ours do not commit asynchronously."""

from __future__ import annotations

import pytest

from vedur import db as vdb


@pytest.mark.parametrize(
    ("server", "ours"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
)
def test_a_server_that_commits_asynchronously_does_not_for_us(
    db: vdb.Database, server: str, ours: str
) -> None:
    """Where nothing waits for the disk, and only there, our sessions do."""
    db.autocommit = True
    name = db.value("select quote_ident(current_database())")
    db.execute(f"alter database {name} set synchronous_commit = '{server}'")
    with vdb.connect(db.connstr) as fresh:
        assert fresh.value("show synchronous_commit") == ours
