"""A partition's producers: sequences, open transactions, snapshots, verification."""
