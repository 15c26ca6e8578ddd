"""A node's metrics for Prometheus: how they are read, and their text."""
