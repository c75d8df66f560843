"""What a table is here and there: names, columns, conditions, structure, indexes, partitions."""

from __future__ import annotations
