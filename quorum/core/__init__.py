"""The pure Raft core: events and the time in, effects out. It imports nothing of the rest of the quorum."""
