"""Requests to other brokers that are not fetches: markers, verification, and what they share."""
