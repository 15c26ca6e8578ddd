"""What a run says when it has ended: summary, tables, page."""
