"""Names of SQL objects as the contract writes them: `schema.name`, unquoted.

The contract stores and prints names unquoted (`digoal_01.user_info`), and a bare name means
schema `public`. A name with more than one dot is ambiguous there, as upstream; the first dot
separates. Quoting for SQL text is done here alone, by the rule that quotes always.
"""

from __future__ import annotations

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
        """Both parts quoted, safe to splice into SQL."""
        return f"{quote_ident(self.schema)}.{quote_ident(self.name)}"


def quote_ident(name: str) -> str:
    """Quote an identifier, always: keywords differ between server versions."""
    if "\x00" in name:
        raise UsageError("an identifier cannot contain a NUL character")
    return '"' + name.replace('"', '""') + '"'


def parse_name(text: str) -> QualifiedName:
    """Read `schema.name`; a name without a dot lives in schema `public`."""
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
    """The contract's form of a name: `public.` added where there is no schema."""
    return str(parse_name(text))
