"""Transactions across brokers: coordinators write markers to leaders, leaders ask coordinators."""
