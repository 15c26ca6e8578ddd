"""Seeded simulation of the quorum: virtual time, links, disks that lose unflushed data, and faults.

The Raft core is the product's; only the world around it is a model.
"""
