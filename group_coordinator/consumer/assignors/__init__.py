"""The server-side assignors of KIP-848, which assign the partitions of the subscribed topics to members.

They are pure and deterministic, and know nothing about epochs or the partitions that members own now.
"""
