"""The process from which Spark on this machine forks its Python tasks, with all imports made.

Spark's own imports nothing beforehand, so that every task process spends a second on Arrow and
the PostgreSQL driver; and it collects garbage after every task, with all these libraries in memory:
95 % of the time of a process that got empty tasks (py-spy, on a busy machine). Here the libraries
are loaded once and then left out of collections (`settle`, in `tasks.py`).

`spark.python.daemon.module` names this module; see `vedur/pipeline/spark/session.py`.
"""

from __future__ import annotations

import importlib
import os
import sys
import zipimport

from vedur.pipeline.spark.early import SWITCH, hand_over, serve_early


def forget_archives() -> None:
    """Let no task process list the archives on the path again, as each does when it begins: for
    every package that came out of one. Whoever imports from one later finds the list of now.

    One of them is Spark's own jar, with its classes. That takes 16 MB and 50 ms of CPU, and the
    others as much (Spark 4.3).
    """
    for entry, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[entry]


def calm() -> None:
    """Let no library start a thread: a child gets locks as they are when this process forks, and
    not the thread that would release them. Arrow's allocator and numpy's algebra would start one.
    """
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Arrow's own allocator sets megabytes aside in each process; ours are small and short-lived.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def load() -> None:
    """Load what tasks need, before anything is forked."""
    calm()
    importlib.import_module("pyspark.daemon")
    importlib.import_module("vedur.pipeline.spark.tasks").settle()


def main() -> None:
    """Run as the process that tasks are forked from, now or as soon as Spark asks for one."""
    if sys.argv[1:2] == [SWITCH]:
        serve_early(sys.argv[2], load)
        calm()  # the environment is another one now
    elif hand_over():
        return
    else:
        load()
    forget_archives()
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
