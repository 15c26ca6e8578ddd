"""Server-side assignors of KIP-848: who is to own which partition of the subscribed topics.

Pure and deterministic; they know nothing of epochs or of who owns what right now.
"""
