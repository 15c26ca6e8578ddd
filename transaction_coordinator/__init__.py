"""Transactions on ``__transaction_state``: who produces under a transactional id, how a transaction ends.

Handlers decide on immutable state and return records; only replay changes the state.
"""
