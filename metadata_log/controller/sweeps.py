"""What follows for partitions when brokers come and go, or the rules change: worked off in slices.

Fencing a broker that leads a third of a large cluster changes tens of thousands of partitions. The record
that fences it is committed alone; a sweep then goes through all partitions, topic by topic, and repairs those
that are not as the rules want them (:mod:`.elections`), a slice of bounded length at a time, each decided on
the newest image. Registration, unfencing, controlled shutdown and changed election rules are followed by the
same sweep: repair asks for nothing but the image, so one pass serves whatever has happened before it began.

**What is kept here can be lost.** The position of a pass is the active controller's own; its successor begins
with a pass over everything, which finds whatever was left undone.

**Why nothing is lost meanwhile.** Until its partitions have been gone through, a broker that is not active
may still be named as leader or ISR member:

- As leader it commits nothing that the ISR does not hold, and it cannot change the ISR: its proposals name
  itself, which is not eligible. So whoever of the ISR leads next holds every committed record. Clients are
  told that there is no leader, since they are shown leaders only while their brokers are not fenced; the
  broker itself serves nobody once it knows, and its lease ran out before the fence (:mod:`.leadership`):
  leaderships move later than that argument asks for, never earlier.
- As an ISR member it holds up the high watermark for the length of a pass. Safety asks for no more.
- **It does not become active before** a pass that began after its last change has been completed
  (:meth:`Sweeps.is_settled`). Otherwise a new incarnation that lost records would stand in the ISRs of its
  predecessor. In the log the record that unfences a broker therefore stands behind every change that the
  pass made, on whichever controller: one that takes over has to complete a pass of its own first.
  And the broker must have applied those changes (:meth:`Sweeps.settled_offset`): a broker that is told by
  the answer to its heartbeat that it may serve, and still takes itself for the leader it was before it lost
  records, would make a follower that knows no better cut its log. Later passes it need not know: they have
  other causes and give nothing to who is not active, and somebody may cause them without end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.election_rules import ELECTION_CONFIGS
from pykraft.metadata_log.controller.elections import Elections
from pykraft.metadata_log.controller.topic_walk import TopicWalk
from pykraft.metadata_log.delta import Changes
from pykraft.metadata_log.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from pykraft.metadata_log.image import BrokerRegistration, MetadataImage, TopicImage
from pykraft.metadata_log.records import PartitionChangeRecord

SLICE_CHANGES: Final = 500
"""A slice ends with this many changes: deciding and replaying one costs some ten microseconds."""


class Sweeps:
    """The passes of one active controller over all partitions. Passes are numbered from 1, one at a time."""

    def __init__(self, config: ControllerConfig) -> None:
        self._config = config
        self.clear()

    def clear(self) -> None:
        """Another controller sweeps now."""
        self._completed = self._wanted = self._least = 0
        self._least_offset = -1
        self._unsettled: dict[int, int] = {}
        self._settled_offsets: dict[int, int] = {}
        self._pass: TopicWalk | None = None

    def begin(self) -> None:
        """This controller becomes active: it does not know what its predecessor has left undone."""
        self.clear()
        self.request()
        self._least = self._wanted

    def request(self, broker_ids: Iterable[int] = ()) -> None:
        """Something has changed that partitions follow from; these brokers are settled only afterwards."""
        self._wanted = self._completed + (1 if self._pass is None else 2)
        for broker_id in broker_ids:
            self._unsettled[broker_id] = self._wanted

    @property
    def is_pending(self) -> bool:
        """Whether there is a slice to be worked off."""
        return self._completed < self._wanted

    def is_settled(self, broker_id: int) -> bool:
        """Whether every partition has been gone through since the broker last changed."""
        return self._completed >= self._least and broker_id not in self._unsettled

    def settled_offset(self, broker_id: int) -> int:
        """The last offset of the pass with which the broker, which is settled, became so."""
        return self._settled_offsets.get(broker_id, self._least_offset)

    def next_slice(self, image: MetadataImage) -> list[PartitionChangeRecord]:
        """The next changes, to be appended before anything else is decided. May be none: call again."""
        assert self.is_pending, "nothing is to be swept"
        if self._pass is None:
            self._pass = TopicWalk(image)
        slice_ = _Slice(Elections(image, self._config))
        self._pass.next_slice(image, slice_.visit)
        if self._pass.is_complete:
            self._pass = None
            self._completed += 1
            self._settle(image.offset + len(slice_.changes))
        return slice_.changes

    def _settle(self, offset: int) -> None:
        """A pass has been completed; ``offset`` is its last."""
        if self._completed == self._least:
            self._least_offset = offset
        for broker_id in [id for id, number in self._unsettled.items() if number <= self._completed]:
            del self._unsettled[broker_id]
            self._settled_offsets[broker_id] = offset


class _Slice:
    """The changes of one slice."""

    def __init__(self, elections: Elections) -> None:
        self._elections = elections
        self.changes: list[PartitionChangeRecord] = []

    def visit(self, topic: TopicImage, start: int, most: int) -> int:
        room = SLICE_CHANGES - len(self.changes)
        if room == 0:
            return 0
        found, seen = self._elections.repair_some(topic, start, most, room)
        self.changes += found
        return seen


def find_moved_brokers(old: MetadataImage, new: MetadataImage, changes: Changes) -> list[int]:
    """The brokers that partitions have to follow: active now or no longer, another incarnation, or gone."""
    return [
        broker_id
        for broker_id in sorted(changes.brokers)
        if _standing(old.brokers.get(broker_id)) != _standing(new.brokers.get(broker_id))
    ]


def _standing(broker: BrokerRegistration | None) -> tuple[int, bool] | None:
    return None if broker is None else (broker.epoch, broker.is_active)


def changes_elections(old: MetadataImage, new: MetadataImage, changes: Changes) -> bool:
    """Whether the rules by which leaders are chosen have changed for any topic."""
    if ELIGIBLE_LEADER_REPLICAS_VERSION in changes.features:
        return True
    return any(
        old.resource_config(*key).get(name) != new.resource_config(*key).get(name)
        for key in changes.configs
        for name in ELECTION_CONFIGS
    )
