"""What only a follower does: fetches from its leader, and decides what it appends."""
