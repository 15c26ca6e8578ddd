"""``pykraft storage``, ``dump-log`` and ``metadata-shell``: files, without a cluster."""
