"""The report of a run: summary, tables, page."""
