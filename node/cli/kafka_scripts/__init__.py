"""``pykraft kafka-scripts``, and the table of Kafka's scripts and flags."""
