"""What a node tells Prometheus of itself: the metrics, how they are read, and their text."""
