"""Spark finds data sources in top-level modules named ``pyspark_*`` by their ``DefaultSource``."""

from pykraft.spark.source import PykraftDataSource as DefaultSource

__all__ = ["DefaultSource"]
