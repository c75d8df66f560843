"""Names of SQL objects as the contract writes them: `schema.name`, unquoted.

The contract stores and prints names unquoted (`digoal_01.user_info`), and a bare name means
schema `public`. A name with more than one dot is ambiguous there, as upstream; the first dot
separates. Quoting for SQL text is done here alone, by the rule that quotes always.

An operator may also write a name as SQL does, `"Weird Schema"."Order"`, either part quoted or both;
`readings` gives what such a text can mean. Stored names are never read that way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vedur.errors import UsageError

MAX_NAME_BYTES = 63  # NAMEDATALEN - 1 of a standard build


@dataclass(frozen=True, order=True, slots=True)
class QualifiedName:
    """A schema and a name in it; `str()` is the contract's form, `.quoted` is SQL."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        """Return both parts quoted, safe to put into SQL."""
        return f"{quote_ident(self.schema)}.{quote_ident(self.name)}"


def quote_ident(name: str) -> str:
    """Quote an identifier, always: keywords differ between server versions."""
    if "\x00" in name:
        raise UsageError("an identifier cannot contain a NUL character")
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """Quote a string for SQL text that cannot take a parameter: stored DDL, conditions of slices.

    A backslash is doubled in an E string, which reads the same whatever
    `standard_conforming_strings` says.
    """
    quoted = "'" + text.replace("'", "''") + "'"
    return "E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def parse_name(text: str) -> QualifiedName:
    """Parse `schema.name`; a name without a dot is in schema `public`."""
    schema, dot, name = text.partition(".")
    if not dot:
        schema, name = "public", text
    for part in (schema, name):
        if not part:
            raise UsageError(f'"{text}" is not a name: write it as schema.name')
        if len(part.encode()) > MAX_NAME_BYTES:
            raise UsageError(
                f'"{part}" is longer than {MAX_NAME_BYTES} bytes: PostgreSQL would cut it'
            )
    return QualifiedName(schema, name)


def fqname(text: str) -> str:
    """Return the contract's form of a name: `public.` is added where there is no schema."""
    return str(parse_name(text))


_PART = r'"(?:[^"]|"")+"|[^".]+'
_SQL_FORM = re.compile(rf"({_PART})(?:\.({_PART}))?")


def sql_parts(text: str) -> tuple[str, ...] | None:
    """Split a name that has at least one part in double quotes; None for others."""
    match = _SQL_FORM.fullmatch(text)
    if match is None or '"' not in text:
        return None
    return tuple(part for part in match.groups() if part is not None)


def readings(text: str) -> tuple[str, ...]:
    """List what a name that an operator wrote can mean, the likeliest first, in the contract's
    form.

    In `"Weird Schema"."Order"` the quotes are SQL's, unless a name really has quotes in it.
    """
    parts = sql_parts(text)
    plain = fqname(text)
    if parts is None:
        return (plain,)
    bare = [part[1:-1].replace('""', '"') if part[0] == '"' else part for part in parts]
    if len(bare) == 1:
        bare.insert(0, "public")
    schema, name = bare
    if "." in schema:
        raise UsageError(
            f'schema "{schema}" has a dot in its name: the registry cannot hold such a name'
        )
    return (fqname(f"{schema}.{name}"), plain)


def read_name(text: str) -> str:
    """Return the contract's form of a name that an operator gives to something new."""
    return readings(text)[0]
