"""``pykraft producer``, ``consumer``, ``verifiable-producer`` and ``verifiable-consumer``, over librdkafka."""
