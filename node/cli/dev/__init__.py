"""``pykraft dev``."""
