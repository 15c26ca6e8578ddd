"""The consumer protocol (KIP-848): each member is taken to its target by its own heartbeats."""
