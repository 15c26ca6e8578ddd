"""The metadata of the cluster: records, the immutable image they build, and the controller that decides on
new records.

Controllers and brokers use the same image and the same replay.
"""
