"""The error of a node that does not start."""

from __future__ import annotations


class StartError(Exception):
    """The node must not start: damage on its disk, or an address or directory in use. Says which."""
