"""The indexes beside a segment: by offset, by time, of aborted transactions; checked and rebuilt."""
