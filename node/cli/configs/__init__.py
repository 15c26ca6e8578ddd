"""``pykraft configs`` and ``client-metrics``."""
