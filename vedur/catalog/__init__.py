"""Typed face of schema londiste: tables, sequences, foreign keys, scripts, and table structure."""

from __future__ import annotations

from vedur.catalog.attrs import decode_attrs, encode_attrs
from vedur.catalog.sequences import SequenceInfo, get_seq_list
from vedur.catalog.tables import TableInfo, get_table_list

__all__ = [
    "SequenceInfo",
    "TableInfo",
    "decode_attrs",
    "encode_attrs",
    "get_seq_list",
    "get_table_list",
]
