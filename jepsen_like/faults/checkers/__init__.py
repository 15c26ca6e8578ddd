"""Checkers of recorded histories: the anomalies by name, whether a run counts, and the checkers' own test.

All are pure functions over recorded events.
"""
