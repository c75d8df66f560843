"""The Spark data source `pgq`: the events of a queue as a DataFrame, in batches or as a stream.

`spark.read.format("pgq")` and `spark.readStream.format("pgq")`; docs/reference/spark-source.md
tells the options and columns. Spark finds it by itself through the package `pyspark_pgq`. It needs
the schema `pgq` only, ours or upstream's, and knows nothing of nodes.
"""

from __future__ import annotations
