"""Generated from ``proto/metadata_log/pb`` by ``make proto``: what brokers ask of the controller.

Nothing here is written by hand.
"""
