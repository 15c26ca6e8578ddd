"""The faults of a simulated cluster, and their times."""
