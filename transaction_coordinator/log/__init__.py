"""``__transaction_state``: records, their encoding, and how a shard is replayed and loaded from them."""
