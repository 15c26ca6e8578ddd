"""Codecs written by hand, for the few messages of which there are many: Produce, Fetch, offsets."""
