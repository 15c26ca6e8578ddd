"""Simulation, fault runs on real processes, and conformance: scripts that Apache Kafka is asked, too.

Stands above everything else and is imported by nothing but the ``jepsen`` command.
"""
