"""Planted anomalies: every checker finds the one that it is for."""
