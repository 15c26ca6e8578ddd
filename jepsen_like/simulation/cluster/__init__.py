"""Ring 2: whole clusters in virtual time."""
