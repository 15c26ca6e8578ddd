"""The Kafka wire protocol without sockets: messages, headers, errors, record batches, compression.

Shared by the server and the clients; imports nothing of either.
"""
