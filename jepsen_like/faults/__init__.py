"""Clusters of real processes under a seeded nemesis, and the histories of their clients, checked."""
