"""Ring 1: Raft cores and whole quorum nodes, with every invariant checked after every event."""
