"""Streaming queries under faults: ``python -m pykraft.jepsen_like.faults.spark_rounds --rounds 20``."""
