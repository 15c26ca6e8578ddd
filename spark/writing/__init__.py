"""Frames and streams into topics: rows on executors, the commit on the driver."""
