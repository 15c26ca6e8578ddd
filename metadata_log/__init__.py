"""The metadata of the cluster: its records, the immutable image they fold into, and who decides on new ones.

Controller and brokers share one image and one replay.
"""
