"""Garbage collection in a process that holds a large image."""

from __future__ import annotations

import gc


def keep_out_of_collection() -> None:
    """Exempt all live objects from garbage collection.

    With a million partitions a full collection stops the process for a fifth of a second and finds nothing:
    an image has no cycles and is freed by its reference counts. If this is called often, a call takes
    milliseconds: only objects created since the last call are visited. Garbage is collected first, but an
    object that is alive now and becomes part of a garbage cycle later is never freed: objects with a limited
    lifetime, such as connections, must break their cycles when they end.
    """
    gc.collect()
    gc.freeze()
