"""All Spark: sessions, and the jobs that move table data. Nothing above it knows pyspark."""

from __future__ import annotations
