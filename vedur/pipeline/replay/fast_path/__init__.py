"""The fast path of staging: JSON events that look alike are recognised and not decoded.

A task reads its slice as COPY text. Most rows of a table look alike: the same columns in the same
order, plain values. For these it is enough to know where each value begins: a JSON string without
escapes is a quoted CSV field, a number an unquoted one, `null` the mark of NULL, so a payload
becomes a line of CSV by leaving out the names. Rows that do not look like others (escapes, nested
values, other columns, other formats) take the slow path through `Collapser.add_row`, which decodes
them. Both paths stage the same: tests compare them on random payloads.

    by column   Block -> TableRows -> PatternRows -> Piece -> Waiting -> NetChanges -> CSV
    handled     the same, but PatternRows show values to the table's handler (`made`)
    by pattern  Block -> TableRows -> text -> Entry with a payload -> CSV
    slow path   Block -> TableRows -> text -> Entry with values -> COPY text

Who owns what: `FastReader` (`rows`) reads and decides which of the three ways a row takes. The
`TableBuffer` of a table (`pipeline/replay/collapse`) owns all that was gathered for it, and is
changed by its own methods only. The `Collapser` owns the buffers and counts events and bytes. Rows
of a table with a function over rows (`vedur/tables/row_function.py`) go by column or take the slow
path, which shows them to the function, too: nothing waits or is an entry that it has not seen.

Terms:

block         a piece of COPY text that holds whole rows
row           one event as COPY writes it: seven fields between tabs
payload       the last field, `ev_data`: a JSON object
shape         the column names of a payload, and where each value goes in a staging table
pattern       how rows of one table with one shape look: a regular expression for single rows, and
              a layout for many at once
layout        the names in a payload, and what kind of value may follow each
offset        a place in a block, counted in bytes
value         the bytes of a payload between a name and the comma or brace that follows
payloads      payloads of one layout as a matrix of offsets: a line per row, a column per value
run           rows of a table one after the other that match one pattern
piece         the run of one block, kept as offsets into it
waiting       pieces of one pattern that came after all entries of their table; they are collapsed
              together when the buffer is written
entry         the net change of one key so far, as a Python object
net changes   waiting rows that were collapsed: one row per key, all of one kind
kind          what a net change does to its row, see `vedur/change/event.py`
part          what one task writes for one table at one time; a key is in it at most once
slow path     decoding an event by itself, and staging its values as COPY text
"""

from __future__ import annotations
