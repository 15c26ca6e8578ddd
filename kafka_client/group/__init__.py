"""A member of a consumer group, in either protocol."""
