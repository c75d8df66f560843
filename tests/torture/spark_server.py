"""A Spark Connect server that the commands of a campaign share.

A campaign with plain workers (`plain.py`) needs Spark for comparisons and repairs only. A session
of its own costs each of those commands half a minute on a busy machine; with a server that is there
already a command can be killed at every step. What it had asked for runs on there without it, which
is one thing more that must leave nothing behind.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pyspark

from tests.torture.processes import DAEMON
from vedur.pipeline.spark.session import DEFAULTS


class SparkServer:
    """How to start it, and where it listens."""

    def __init__(self, place: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"sc://127.0.0.1:{self.port}"
        home = Path(pyspark.__file__).parent
        own = place / "spark"
        own.mkdir()
        settings = {
            # as the session that a command would start
            **{key: value for key, value in DEFAULTS.items() if key != "spark.master"},
            "spark.python.daemon.module": DAEMON,
            "spark.sql.shuffle.partitions": "2",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(own),
            "spark.sql.warehouse.dir": str(own),
            "spark.driver.extraJavaOptions": (
                f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={own}"
            ),
        }
        self.argv = [str(home / "sbin" / "start-connect-server.sh"), "--master", "local[2]"]
        for key, value in settings.items():
            self.argv += ["--conf", f"{key}={value}"]
        self.env = {
            "SPARK_HOME": str(home),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_LOG_DIR": str(own),
            "SPARK_PID_DIR": str(own),
            "PYSPARK_PYTHON": sys.executable,
            "TMPDIR": str(own),
        }
