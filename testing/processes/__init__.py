"""Processes of nodes and of Apache Kafka: started, awaited, ended."""
