"""Seeded simulation of the quorum: a scheduler of virtual time, links, disks that forget, and the faults.

The core in it is the product's; only the world around it is a model.
"""
