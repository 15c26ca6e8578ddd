"""Clients for workloads: pykraft's own, librdkafka's and Apache Kafka's."""
