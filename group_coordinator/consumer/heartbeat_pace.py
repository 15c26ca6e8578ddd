"""How soon members of the consumer protocol are asked to return (KIP-848: every answer says it).

A coordinator can tell a member something only when it asks: the interval of heartbeats is most of the time
that a rebalance takes. The interval that is configured has to suit thousands of members. A broker with few of
them can afford to be asked more often, so that their rebalances take a second, and not five.
"""

from __future__ import annotations

from collections.abc import Callable

from pykraft.group_coordinator.state.config import GroupConfig

LEAST_INTERVAL_MS = 1_000


class HeartbeatPace:
    """The interval for the next answer, from the number of members that this broker coordinates.

    ``count_members`` may count more than these, and takes some microseconds: it is called again only when the
    number can have changed by an eighth.
    """

    def __init__(self, count_members: Callable[[], int]) -> None:
        self._count_members = count_members
        self._members = 0
        self._answers_left = 0

    def interval_ms(self, config: GroupConfig) -> int:
        """Never more than the group's own interval; :attr:`.GroupConfig.consumer_heartbeats_per_second`, or
        fewer, if all members obey.
        """
        longest_ms, rate = config.consumer_heartbeat_interval_ms, config.consumer_heartbeats_per_second
        if not rate:
            return longest_ms
        if not self._answers_left:
            self._members = self._count_members()
            self._answers_left = 1 + self._members // 8
        self._answers_left -= 1
        return min(longest_ms, max(LEAST_INTERVAL_MS, self._members * 1_000 // rate))
