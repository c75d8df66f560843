"""Typed face of schema londiste: tables, sequences, foreign keys, scripts, and table structure."""

from __future__ import annotations

from vedur.catalog.sequences import SequenceInfo, get_seq_list
from vedur.catalog.tables import TableInfo, TableSet, get_table_list
from vedur.change.attrs import decode_attrs, encode_attrs

__all__ = [
    "SequenceInfo",
    "TableInfo",
    "TableSet",
    "decode_attrs",
    "encode_attrs",
    "get_seq_list",
    "get_table_list",
]
