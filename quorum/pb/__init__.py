"""Generated from ``proto/quorum/pb`` by ``make proto``: the messages of the quorum's gRPC service.

Nothing here is written by hand.
"""
