"""Streaming queries of Spark under faults: ``python -m pykraft.jepsen_like.spark_rounds --rounds 20``."""
