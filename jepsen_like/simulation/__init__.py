"""Seeded simulation in rings: the Raft core, whole quorum nodes, whole clusters, and a fuzzed node.

The code is the product's; only the world around it is a model: virtual time, links, disks that lose unflushed
data, and faults.
"""
