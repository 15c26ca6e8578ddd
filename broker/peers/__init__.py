"""Requests to other brokers, other than the fetches of followers."""
