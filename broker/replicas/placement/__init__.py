"""Which replicas are here: opened, moved, lost and reported as the metadata image says."""
