"""What clients do to a cluster while it is being broken.

Every workload writes what it sent, and what it was told, to the history.
"""
