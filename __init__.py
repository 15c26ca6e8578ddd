"""A Kafka that a Python programmer can install, read, trust and run."""

__version__ = "0.1.0"

from pykraft import compiled as compiled  # finds compiled modules in place of sources, from here on
