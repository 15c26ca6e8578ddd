"""Log compaction: of the records with one key, only the newest is kept (see :mod:`.cleaning`)."""
