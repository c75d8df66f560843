"""How a node is reached: connect string, what the ini adds for other nodes, and under which name.

The local database is reached as the ini says. Another node is reached by its location, which comes
from the registry of the set: `remote_extra_connstr` is added and `remote_hosts` is checked (see
`vedur/db/conninfo.py`). Every connection that a command, the page or a worker opens to a node goes
through an `Endpoint`, so none can forget either.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from vedur.config import LondisteSettings
from vedur.db import Database, connect
from vedur.db.conninfo import parse, remote, with_params, without_secrets


@dataclass(frozen=True)
class Endpoint:
    """A database to connect to; `title` is the application_name that its server shows."""

    connstr: str = field(repr=False)
    title: str = "vedur"

    @classmethod
    def of_local(cls, settings: LondisteSettings, title: str = "vedur") -> Endpoint:
        """Return the database of the ini."""
        return cls(settings.db, title)

    @classmethod
    def of_node(cls, settings: LondisteSettings, location: str, title: str = "vedur") -> Endpoint:
        """Return another node, by its location; raises `ConnectError` for one that is not safe."""
        return cls(remote(location, settings.remote_extra_connstr, settings.remote_hosts), title)

    def titled(self, title: str) -> Endpoint:
        """Return the same database under another application_name."""
        return replace(self, title=title)

    def with_connect_timeout(self, seconds: int) -> Endpoint:
        """Return it with a limit on the time to connect, unless it has one of its own."""
        if "connect_timeout" in parse(self.connstr):
            return self
        return replace(self, connstr=with_params(self.connstr, connect_timeout=str(seconds)))

    @property
    def masked(self) -> str:
        """The connect string without passwords, for messages."""
        return without_secrets(self.connstr)

    def open(self, name: str) -> Database:
        """Connect; statements commit by themselves. Log lines and errors call it `name`."""
        return connect(self.connstr, name=name, autocommit=True, application_name=self.title)
