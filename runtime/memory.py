"""Garbage collection in a process that holds a large image."""

from __future__ import annotations

import gc
from typing import ClassVar, Final

_NEVER: Final = 1 << 30


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


class YoungCollectionsOnly:
    """While one exists that has not ended, the collector visits young objects only.

    For work that makes very many objects and drops them soon. A full collection among a hundred thousand of
    them takes longer than a turn of the loop should, and finds nothing.
    """

    _begun: ClassVar[int] = 0
    _usual: ClassVar[int] = 0

    def __init__(self) -> None:
        if not YoungCollectionsOnly._begun:
            young, middle, YoungCollectionsOnly._usual = gc.get_threshold()
            gc.set_threshold(young, middle, _NEVER)
        YoungCollectionsOnly._begun += 1
        self._has_ended = False

    def end(self) -> None:
        """The second time it does nothing."""
        if self._has_ended:
            return
        self._has_ended = True
        YoungCollectionsOnly._begun -= 1
        if not YoungCollectionsOnly._begun:
            young, middle, _ = gc.get_threshold()
            gc.set_threshold(young, middle, YoungCollectionsOnly._usual)
