"""Settings: one table of parameters per program, and what is made from it.

`LondisteSettings` and `PgqdSettings` are frozen dataclasses; each field carries its `Parameter`
(kind, default, group, words), and reading an ini, checking it, the `--ini` sample and the
reference page all come from those fields. To add a parameter, add a field.
"""

from __future__ import annotations

from vedur.config.londiste import LondisteSettings, load_londiste
from vedur.config.pgqd import PgqdSettings, load_pgqd
from vedur.config.sample import reference_table, sample_ini

__all__ = [
    "LondisteSettings",
    "PgqdSettings",
    "load_londiste",
    "load_pgqd",
    "reference_table",
    "sample_ini",
]
