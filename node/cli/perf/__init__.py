"""``pykraft producer-perf-test`` and ``consumer-perf-test``."""
