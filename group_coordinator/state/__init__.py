"""The state that decisions read: immutable groups, members and offsets; and the results of decisions."""
