"""Consumer groups on ``__consumer_offsets``: KIP-848, the classic protocol and committed offsets.

Handlers decide on immutable state and return records; only replay changes the state.
"""
