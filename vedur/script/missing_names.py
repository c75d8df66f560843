"""What a script names and a node does not have; reads the catalogs only."""

from __future__ import annotations

from collections.abc import Sequence

from vedur.db import Database
from vedur.names import quote_ident
from vedur.script.mentions import read_mentions
from vedur.sql import query


def lacking(db: Database, statements: Sequence[str], earlier: Sequence[str] = ()) -> list[str]:
    """Read which names in `statements` neither the node has nor a script makes; one sentence for
    each.

    `earlier` are statements that will have run before. Names without a schema depend on the
    search_path and are passed over, as is what only runs inside functions.
    """
    here, before = read_mentions(statements), read_mentions(earlier)
    wanted = [n for n in here.needed if not here.comes(n) and not before.comes(n)]
    made_in = {n.schema for n in here.made} - here.schemas - before.schemas - {"pg_temp"}
    names = [*((n.schema, n.name) for n in wanted), *((schema, None) for schema in made_in)]
    if not names:
        return []
    rows = db.query(
        query("catalog", "lacking"),
        [
            [quote_ident(schema) for schema, _ in names],
            [quote_ident(name) if name is not None else None for _, name in names],
            [schema for schema, _ in names],
            [f"{schema}.{name}" for schema, name in names],
        ],
    )
    said = [
        f'schema "{r.schema}" does not exist here'
        if r.no_schema
        else f'"{r.name}" does not exist here'
        for r in rows
    ]
    return list(dict.fromkeys(said))
