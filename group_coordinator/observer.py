"""Watches the shards of a group coordinator at work, with no part in it: a simulation checks them there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pykraft.group_coordinator.shard import GroupShard


class GroupObserver:
    """Told by the runtime of a coordinator, in the same turn. This one does nothing."""

    def shard_loaded(self, shard: GroupShard) -> None:
        """Its whole log has been read, and nothing has been decided yet."""

    def shard_committed(self, shard: GroupShard) -> None:
        """The high watermark of a loaded shard's log has moved; what waited for it has been answered."""


UNOBSERVED: Final = GroupObserver()
