"""Fault injection: clusters of real processes under a seeded nemesis with a checked history, and simulation.

Stands above everything else and is imported by nothing but the ``jepsen`` command.
"""
