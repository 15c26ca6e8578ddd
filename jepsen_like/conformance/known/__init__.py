"""The differences to Apache Kafka that are meant."""
