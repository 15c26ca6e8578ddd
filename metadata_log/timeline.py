"""A value that runs ahead of what is committed, and can fall back to it.

A leader applies its own records before they are replicated, so that the next command sees them; others may
see them only once the high watermark has passed them. :class:`Timeline` holds the newest value, the committed
one, and those in between. Values must be immutable: to revert is to return to an older one.

This file decides when a value is committed; it never looks into the value. The controller uses it for the
metadata image, the group coordinator for the groups of a shard.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Timeline(Generic[T]):
    """The newest value, the committed value, and the pending ones between them, by offset.

    Offsets are either all exclusive (end offsets) or all inclusive (last offsets); the caller chooses once.
    """

    __slots__ = ("_committed", "_committed_offset", "_pending")

    def __init__(self, value: T, offset: int = -1) -> None:
        self._committed = value
        self._committed_offset = offset
        self._pending: deque[tuple[int, T]] = deque()

    @property
    def current(self) -> T:
        """The newest value, committed or not: what the next command is decided on."""
        return self._pending[-1][1] if self._pending else self._committed

    @property
    def committed(self) -> T:
        """The newest value that can no longer be taken back."""
        return self._committed

    @property
    def committed_offset(self) -> int:
        """The offset the committed value was set at."""
        return self._committed_offset

    @property
    def last_offset(self) -> int:
        """The offset the newest value was set at."""
        return self._pending[-1][0] if self._pending else self._committed_offset

    @property
    def has_pending(self) -> bool:
        """Whether anything is set that is not yet committed."""
        return bool(self._pending)

    def set(self, offset: int, value: T) -> None:
        """Make ``value`` the newest one, as of ``offset``. Offsets never decrease.

        Setting twice at one offset replaces the value.
        """
        assert offset >= self.last_offset, f"offset {offset} lies before {self.last_offset}"
        if self._pending and self._pending[-1][0] == offset:
            self._pending[-1] = (offset, value)
        else:
            self._pending.append((offset, value))

    def commit(self, up_to_offset: int) -> T:
        """Everything set at ``up_to_offset`` or before is final; returns the committed value."""
        while self._pending and self._pending[0][0] <= up_to_offset:
            self._committed_offset, self._committed = self._pending.popleft()
        return self._committed

    def rebase(self, offset: int, value: T) -> None:
        """``value``, computed elsewhere, is committed at ``offset``; pending values are later and stay."""
        assert offset >= self._committed_offset, f"offset {offset} lies before {self._committed_offset}"
        assert not self._pending or self._pending[0][0] > offset, f"offset {offset} is pending here"
        self._committed_offset, self._committed = offset, value

    def revert(self) -> T:
        """Drop everything that is not committed; returns the value that is now the newest."""
        self._pending.clear()
        return self._committed
