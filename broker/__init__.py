"""The broker: client listeners, the APIs it serves, partitions and their replication, logs and the lease.

A partition decides about one replica; the files around it carry that out.
"""
