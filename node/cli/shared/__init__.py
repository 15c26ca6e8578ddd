"""Shared by commands of several families: options, properties, clients, errors, patterns."""
