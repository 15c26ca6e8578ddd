"""The active controller's decisions: registration, fencing, topics, partitions, configs and the ISR.

A handler returns records and a response and changes nothing.
"""
