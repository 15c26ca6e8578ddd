"""Whole quorum nodes in virtual time: the ring between the Raft core and whole nodes."""
