"""The admin client, as coroutines and blocking: one module for each family of operations."""
