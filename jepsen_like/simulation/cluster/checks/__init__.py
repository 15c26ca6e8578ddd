"""Invariants of a simulated cluster."""
