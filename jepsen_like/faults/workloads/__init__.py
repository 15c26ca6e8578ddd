"""Clients' work on a cluster while faults are injected.

Every workload writes its requests and their responses to the history.
"""
