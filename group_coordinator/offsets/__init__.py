"""Committed offsets: commits, fetches, deletions and expiry, of one partition or of very many."""
