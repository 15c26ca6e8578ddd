"""``pykraft topics``, ``get-offsets`` and ``delete-records``."""
