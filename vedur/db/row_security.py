"""Row level security: policies that would hide rows must stop a program of ours, never filter.

With `row_security` off PostgreSQL refuses a statement that a policy would filter; with the default
it leaves rows out without a word: a copy would miss them, an update or delete pass them over, and
compare, which sees the same part, would call the tables equal. So every connection turns it off
(see `vedur.db.database`), and this says what a DBA can do about the refusal.
"""

from __future__ import annotations

from vedur.names import quote_ident

#: Where the server says it: its messages are translated, the names of its functions are not.
_FUNCTION = "check_enable_rls"


def is_row_security(sqlstate: str | None, function: str | None) -> bool:
    """Return True if an error of the server is a statement refused because of policies."""
    return sqlstate == "42501" and function == _FUNCTION


def advice(role: str) -> str:
    """Return what lets a role see every row of a table that has policies."""
    name = quote_ident(role)
    return (
        f"as superuser, run: alter role {name} bypassrls; or grant the table's owner to {name} "
        "and leave FORCE ROW LEVEL SECURITY off"
    )


def explain(message: str, role: str) -> str:
    """Return the server's message and what to do."""
    return f"{message}: replication must see every row; {advice(role)}"
