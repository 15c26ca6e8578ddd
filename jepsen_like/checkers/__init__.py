"""What a history must satisfy: each anomaly by name, whether a run counts, and the checker's own test.

Pure functions over recorded events.
"""
