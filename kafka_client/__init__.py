"""A small Kafka client: connections, metadata, fetching, producing, group members and administration.

For the command line, Spark, tests and a broker's calls to its peers; imports nothing from the server.
"""
