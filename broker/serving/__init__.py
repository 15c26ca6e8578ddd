"""Connections of clients: listeners, and requests in and answers out."""
