"""What the coordinator decides on, immutable groups, members and offsets, and the results of decisions."""
