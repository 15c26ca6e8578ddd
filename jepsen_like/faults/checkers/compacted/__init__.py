"""The checker of compacted logs."""
