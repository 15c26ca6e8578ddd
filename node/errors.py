"""Why a node does not start."""

from __future__ import annotations


class StartError(Exception):
    """A node that must not start: its disk is damaged, or an address or directory is taken. Says where."""
