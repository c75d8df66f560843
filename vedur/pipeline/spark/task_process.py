"""The process from which Spark on this machine forks its Python tasks, with all imports made.

Spark's own imports nothing beforehand, so that every task process spends a second on Arrow and
the PostgreSQL driver; and it collects garbage after every task, with all these libraries in memory:
95 % of the time of a process that got empty tasks (py-spy, on a busy machine). Here the libraries
are loaded once and then left out of collections (`settle`, in `tasks.py`).

`spark.python.daemon.module` names this module; see `vedur/pipeline/spark/session.py`.
"""

from __future__ import annotations

import os
import sys
import zipimport


def forget_archives() -> None:
    """Let no task process list the archives on the path again, as each does when it begins: for
    every package that came out of one. Whoever imports from one later finds the list of now.

    One of them is Spark's own jar, with its classes. That takes 16 MB and 50 ms of CPU, and the
    others as much (Spark 4.3).
    """
    for entry, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[entry]


if __name__ == "__main__":
    # No thread may run when this process forks: a child gets locks as they are and not the thread
    # that would release them. Arrow's allocator and numpy's algebra start one each, if allowed to.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Arrow's own allocator sets megabytes aside in each process; ours are small and short-lived.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    from pyspark import daemon

    from vedur.pipeline.spark.tasks import settle

    settle()
    forget_archives()
    daemon.manager()
