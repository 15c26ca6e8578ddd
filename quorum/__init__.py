"""The metadata quorum: KRaft's pull-based Raft over one replicated log.

Independent of topics and brokers: values are proposed at the leader and delivered, committed, on every node.
"""
