"""A history as a timeline: what was broken when, and how clients were served meanwhile.

Pure functions over the events of a history. They judge nothing; that is what the checkers are for.
"""
