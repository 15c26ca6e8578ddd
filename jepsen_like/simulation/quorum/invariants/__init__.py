"""What must hold in every state of the Raft core."""
