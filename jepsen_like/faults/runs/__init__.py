"""Runs from start to verdict: one, many, long ones, and those of clusters that run elsewhere."""
