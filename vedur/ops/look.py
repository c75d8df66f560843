"""Looking at the whole set from one ini, through connections that only read."""

from __future__ import annotations

from vedur import db as vdb
from vedur.config import LondisteSettings
from vedur.db import Database
from vedur.db.conninfo import parse, with_params
from vedur.ops.session import remote_connstr
from vedur.status.overview import SetReader

#: Seconds to wait for a server; who looks does not want to hang.
_CONNECT_TIMEOUT = "3"


def set_reader(settings: LondisteSettings, purpose: str) -> SetReader:
    """A reader of the set; `purpose` is part of the name that servers see."""

    def open_one(connstr: str, name: str) -> Database:
        if "connect_timeout" not in parse(connstr):
            connstr = with_params(connstr, connect_timeout=_CONNECT_TIMEOUT)
        title = f"{settings.job_name} ({purpose})"
        return vdb.connect(connstr, name=name, autocommit=True, application_name=title)

    return SetReader(
        settings.queue_name,
        lambda: open_one(settings.db, "db"),
        lambda location, name: open_one(remote_connstr(settings, location), name),
    )
