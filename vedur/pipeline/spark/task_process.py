"""The process from which Spark on this machine forks its Python tasks, with all imports made.

Spark's own imports nothing beforehand, so that every task process spends a second on Arrow and
the PostgreSQL driver; and it collects garbage after every task, with all these libraries in memory:
95 % of the time of a process that got empty tasks (py-spy, on a busy machine). Here the libraries
are loaded once and then left out of collections.

`spark.python.daemon.module` names this module; see `vedur/pipeline/spark/session.py`.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os

#: What is in memory after a first batch, a first copy and a comparison. Spark asks for pandas
#: wherever Arrow data goes through Python, whether pandas is used or not.
_NEEDED = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.csv",
    "pyarrow.ipc",
    "pyarrow.pandas_compat",
    "pyspark.worker",
    "vedur.pipeline.compare",
    "vedur.pipeline.copy.task",
    "vedur.pipeline.replay.task",
)


@functools.cache
def settle() -> None:
    """Load what tasks need; what is there now is never looked at by the collector again.

    Tasks call it too: processes of a cluster's executors are Spark's own, and the first does it.
    """
    for name in _NEEDED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    # No thread may run when this process forks: a child gets locks as they are and not the thread
    # that would release them. Arrow's allocator and numpy's algebra start one each, if allowed to.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from pyspark import daemon

    # not this module's own: tasks look into the one that has a name
    from vedur.pipeline.spark import task_process as taskd

    taskd.settle()
    daemon.manager()
