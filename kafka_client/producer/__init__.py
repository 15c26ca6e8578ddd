"""The producer: batches, the queue of each partition, one lane for each broker, transactions."""
