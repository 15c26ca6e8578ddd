"""Ring 1: Raft cores, with every invariant checked after every event."""
