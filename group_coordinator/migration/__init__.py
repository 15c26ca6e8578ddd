"""A group changes its protocol while it has members, and members of both protocols live together."""
