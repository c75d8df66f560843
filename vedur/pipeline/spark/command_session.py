"""The Spark session of a command; Spark is loaded only when a command really starts one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from vedur.config import LondisteSettings
from vedur.log import spark_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def start_spark(settings: LondisteSettings) -> SparkSession:
    """Start a Spark session as the ini says."""
    from vedur.pipeline.spark.session import start_session

    name = f"{settings.job_name} compare"
    return start_session(
        name,
        settings.spark,
        spark_log(settings.logfile),
        echo=log.isEnabledFor(logging.DEBUG),
    )


def end_spark(spark: SparkSession) -> None:
    """End the session and its Java process."""
    from vedur.pipeline.spark.session import stop_session

    stop_session(spark)
