"""The Spark data source ``pykraft``: options, planning, and reading ranges of topics as Arrow batches.

Executors import this package, ``kafka_client`` and ``kafka_protocol`` only.
"""
