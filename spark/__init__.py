"""The Spark data source ``pykraft``: reads ranges of topics as Arrow batches and writes them, exactly once.

Executors import this package, ``kafka_client`` and ``kafka_protocol`` only.
"""
