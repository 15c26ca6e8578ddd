"""``pykraft reassign-partitions``."""
