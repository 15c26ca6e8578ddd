"""Faults for a cluster of processes, the seeded plan of a run, and its execution."""
