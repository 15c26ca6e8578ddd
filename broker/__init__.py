"""The broker: client listeners, the APIs it serves, partitions and their replication, logs and the lease.

``replicas.partition`` decides for one replica; the modules around it carry that out.
"""
