"""The APIs about the cluster: metadata, topics, configurations, log directories."""
