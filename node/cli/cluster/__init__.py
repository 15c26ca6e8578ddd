"""``pykraft cluster``, ``broker-api-versions``, ``features``, ``metadata-quorum``, ``log-dirs`` and ``leader-election``."""
