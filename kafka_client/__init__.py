"""A small Kafka client: connections, metadata, fetching, producing, group members and administration.

For the command line and for Spark; imports nothing from the server.
"""
