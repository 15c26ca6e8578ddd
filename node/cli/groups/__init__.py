"""``pykraft consumer-groups`` and ``groups``."""
