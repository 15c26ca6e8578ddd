"""Decisions on topics and their partitions: created, deleted, placed, reassigned."""
