"""The APIs that write, read and find records: Produce, Fetch, ListOffsets, DeleteRecords."""
