"""One segment of a log: its files, what is found in it, and :class:`.Segment`, which grows."""
