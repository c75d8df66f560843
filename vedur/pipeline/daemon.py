"""The process that Spark forks its Python workers from, with what tasks import already loaded.

Spark ends workers that had nothing to do for a minute. A new one of Spark's own daemon loads
pyarrow, pandas, psycopg and our code again: 1.05 s of CPU before its first event, in every one of
them; forked from here it is 0.17 s, and the memory is shared. Spark starts it as `python -m
vedur.pipeline.daemon` (`spark.python.daemon.module`). Modules are loaded, no connection is open;
the only threads are of libraries that know how to be forked (jemalloc, OpenBLAS).
"""

from __future__ import annotations

import contextlib
import gc

import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import vedur.pipeline.copy.task
import vedur.pipeline.stage.task  # noqa: F401

with contextlib.suppress(ImportError):
    import pandas  # noqa: F401  # Spark's own code in a worker asks for it

if __name__ == "__main__":
    # What is here stays: no worker needs to look at it, which would copy its pages.
    gc.collect()
    gc.freeze()
    manager()
