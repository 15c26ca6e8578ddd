"""The active controller's decisions on brokers, topics, partitions, configs, features and voters.

A handler returns records and a response and changes nothing.
"""
