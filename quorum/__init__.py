"""The metadata quorum: KRaft's pull-based Raft over one replicated log.

Knows nothing of topics and brokers: values go in at the leader and come out committed everywhere.
"""
