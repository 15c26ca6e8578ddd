"""The broker: what a node does for clients and for other brokers.

``replicas.partition.partition`` decides for one replica; the modules around it carry that out.
"""
