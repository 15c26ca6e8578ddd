"""The garbage collector's part in a process that holds a large image."""

from __future__ import annotations

import gc


def keep_out_of_collection() -> None:
    """Take all that lives now out of the garbage collector's sight.

    A million partitions make a full collection stop the process for a fifth of a second, and find nothing:
    an image holds no cycles and is freed by its reference counts all the same. Called often, this takes
    milliseconds: only what came since the last call is looked at. Garbage is not kept, but what is alive now
    and becomes garbage in a cycle later is: what comes and goes, such as a connection, breaks its cycles when
    it ends.
    """
    gc.collect()
    gc.freeze()
