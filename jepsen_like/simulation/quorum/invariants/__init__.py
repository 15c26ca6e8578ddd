"""Invariants of the Raft core, in every state."""
