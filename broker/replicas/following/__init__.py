"""The follower's side: it fetches from its leader, and decides what it appends."""
