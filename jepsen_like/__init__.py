"""Simulation, fault runs on real processes, and conformance: scripts that Apache Kafka is asked, too.

Stands above everything else; of the product, only the ``jepsen`` command imports it.
"""
