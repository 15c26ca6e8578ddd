"""``pykraft transactions``."""
