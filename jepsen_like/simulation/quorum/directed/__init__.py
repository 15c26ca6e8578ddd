"""Schedules of the Raft core that are written by hand."""
