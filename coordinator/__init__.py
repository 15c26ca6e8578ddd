"""The common half of both coordinators: a partition of an internal topic as their log.

*handle → result(records, response) → replay → append → complete at the high watermark.* A coordinator adds
its state, its records and its handlers.
"""
