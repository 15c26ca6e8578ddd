"""Fetch sessions (KIP-227): one session, all sessions of a broker, and the follower's side."""
