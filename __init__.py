"""A Kafka that a Python programmer can install, read, trust and run."""

__version__ = "0.1.0"
