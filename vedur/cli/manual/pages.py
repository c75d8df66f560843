"""Pages of the manual that are made from the code, whole or in parts.

`python -m vedur.cli.manual [docs/reference]` writes them; a test compares. Parts stand between
`<!-- generated: name -->` and `<!-- end -->` in pages that are written by hand. The page of the
commands is made by `vedur.cli.manual.commands` and written along.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from vedur.cli.manual.commands import reference_page
from vedur.cli.manual.errors import error_page
from vedur.cli.manual.exits import exit_page
from vedur.cli.manual.handlers import handlers_page
from vedur.cli.manual.sql import sql_page
from vedur.cli.manual.status import status_page
from vedur.config import LondisteSettings, PgqdSettings, reference_table, sample_ini
from vedur.errors import StateError

_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _configuration() -> dict[str, str]:
    return {
        "londiste": reference_table(LondisteSettings),
        "pgqd": reference_table(PgqdSettings),
        "londiste_sample": f"```ini\n{sample_ini(LondisteSettings, 'londiste3')}```\n",
        "pgqd_sample": f"```ini\n{sample_ini(PgqdSettings, 'pgqd')}```\n",
    }


def _source() -> dict[str, str]:
    from vedur.pipeline.source import columns, options

    uses = {"batch": " (batch only)", "stream": " (stream only)", "both": ""}
    choices = [
        (", ".join(f"`{n}`" for n in (o.name, *o.also)), o.default, o.meaning + uses[o.use])
        for o in options.OPTIONS
    ]
    events = [(f"`{n}`", k.simpleString(), meaning) for n, k, meaning in columns.EVENT_COLUMNS]
    types = [(f"`{n}`", f"`{k.simpleString()}`") for n, k in columns.SIMPLE.items()]
    types += [
        ("`numeric(p,s)`, p up to 38", "`decimal(p,s)`"),
        ("everything else", "`string`, as PostgreSQL writes it"),
    ]
    return {
        "options": _table("option | default | meaning", choices),
        "columns": _table("column | type | meaning", events),
        "types": _table("PostgreSQL | Spark", types),
    }


def _table(head: str, rows: Sequence[tuple[str, ...]]) -> str:
    names = tuple(name.strip() for name in head.split("|"))
    lines = [names, ("---",) * len(names), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _metrics() -> str:
    from vedur.web.metrics_page import reference_page as metrics_page

    return metrics_page()


#: Pages that are generated whole.
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": reference_page,
    "errors.md": error_page,
    "exit-codes.md": exit_page,
    "handlers.md": handlers_page,
    "metrics.md": _metrics,
    "sql-functions.md": sql_page,
    "status-json.md": status_page,
}

#: Pages that have generated parts.
PARTS: dict[str, Callable[[], dict[str, str]]] = {
    "configuration.md": _configuration,
    "spark-source.md": _source,
}


def filled(text: str, parts: dict[str, str]) -> str:
    """Return the page with its generated parts replaced; each part must be in it once."""
    marked = [match[2] for match in _PART.finditer(text)]
    if sorted(marked) != sorted(parts):
        raise StateError(f"the page has parts {marked}, the code has {list(parts)}: mark each once")
    return _PART.sub(lambda m: m[1] + "\n" + parts[m[2]] + "\n" + m[3], text)


def page(name: str, text: str) -> str:
    """Return the text that a page should have; `text` is what it has now."""
    return PAGES[name]() if name in PAGES else filled(text, PARTS[name]())


def main(arguments: list[str]) -> None:
    """Write all generated pages."""
    directory = Path(arguments[0] if arguments else "docs/reference")
    for name in (*PAGES, *PARTS):
        path = directory / name
        path.write_text(page(name, path.read_text("utf-8") if name in PARTS else ""), "utf-8")
