"""Updates partitions, in slices, after brokers or election rules have changed.

Fencing a broker that leads a third of a large cluster changes tens of thousands of partitions. The record
that fences it is committed alone; a sweep then visits all partitions, topic by topic, and repairs those that
do not match the rules (:mod:`.elections`), a slice of bounded length at a time, each decided on the newest
image. The same sweep follows registration, unfencing, controlled shutdown and changed election rules: repair
depends on the image only, so one pass covers everything that happened before it began.

**The state here may be lost.** Only the active controller knows the position of a pass; its successor begins
with a pass over everything, which finds all partitions that still need a change.

**Why no record is lost meanwhile.** Until the pass has visited its partitions, a broker that is not active
may still be named as leader or ISR member:

- As leader it commits nothing that the ISR does not hold, and it cannot change the ISR: its proposals name
  itself, which is not eligible. So every ISR member that may lead next holds every committed record. Clients
  see no leader, since a leader is shown only while its broker is not fenced; the broker itself serves no
  client once it knows, and its lease ended before it was fenced (:mod:`.leadership`): leaderships move later
  than that argument requires, never earlier.
- As an ISR member it delays the high watermark for the length of a pass, which is safe.
- The same holds for a replica whose log directory has failed: its broker, which reported that, no longer
  serves it.
- **It does not become active before** a pass that began after its last change has been completed
  (:meth:`Sweeps.is_swept`). Otherwise a new incarnation that lost records would be in the ISRs of its
  predecessor. In the log, the record that unfences a broker is therefore after every change that the pass
  made, whichever controller made it: a new active controller has to complete a pass of its own first. And the
  broker must have applied those changes (:meth:`Sweeps.swept_offset`): otherwise a broker that learns from
  the response to its heartbeat that it may serve would still believe that it leads partitions as before it
  lost records, and a follower that does not know better would truncate its log. The broker need not have
  applied later passes: they have other causes and give nothing to a broker that is not active, and clients
  may cause them without end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.election_rules import ELECTION_CONFIGS
from pykraft.metadata_log.controller.elections import Elections
from pykraft.metadata_log.controller.topics.topic_walk import TopicWalk
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
        """This controller is no longer active: drop the state."""
        self._completed = self._requested = self._least = 0
        self._least_offset = -1
        self._unswept: dict[int, int] = {}
        self._swept_offsets: dict[int, int] = {}
        self._pass: TopicWalk | None = None

    def begin(self) -> None:
        """This controller becomes active: it does not know which changes its predecessor had left to make."""
        self.clear()
        self.request()
        self._least = self._requested

    def request(self, broker_ids: Iterable[int] = ()) -> None:
        """Start a pass after a change; ``broker_ids`` are swept only when it is complete."""
        self._requested = self._completed + (1 if self._pass is None else 2)
        for broker_id in broker_ids:
            self._unswept[broker_id] = self._requested

    @property
    def is_pending(self) -> bool:
        """Whether there is a slice to run."""
        return self._completed < self._requested

    def is_swept(self, broker_id: int) -> bool:
        """Whether every partition has been visited since the broker last changed."""
        return self._completed >= self._least and broker_id not in self._unswept

    def swept_offset(self, broker_id: int) -> int:
        """The last offset of the pass that swept the broker. The broker must be swept (:meth:`is_swept`)."""
        return self._swept_offsets.get(broker_id, self._least_offset)

    def next_slice(self, image: MetadataImage) -> list[PartitionChangeRecord]:
        """The next changes; they must be appended before anything else is decided. If empty: call again."""
        assert self.is_pending, "nothing is to be swept"
        if self._pass is None:
            self._pass = TopicWalk(image)
        slice_ = _Slice(Elections(image, self._config))
        self._pass.next_slice(image, slice_.visit)
        if self._pass.is_complete:
            self._pass = None
            self._completed += 1
            self._mark_swept(image.offset + len(slice_.changes))
        return slice_.changes

    def _mark_swept(self, offset: int) -> None:
        """A pass is complete; ``offset`` is its last."""
        if self._completed == self._least:
            self._least_offset = offset
        for broker_id in [id for id, number in self._unswept.items() if number <= self._completed]:
            del self._unswept[broker_id]
            self._swept_offsets[broker_id] = offset


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
    """Brokers newly active or inactive, unregistered, or with another incarnation or other directories."""
    return [
        broker_id
        for broker_id in sorted(changes.brokers)
        if _fencing_state(old.brokers.get(broker_id)) != _fencing_state(new.brokers.get(broker_id))
    ]


def _fencing_state(broker: BrokerRegistration | None) -> tuple[int, bool, tuple[Uuid, ...]] | None:
    return None if broker is None else (broker.epoch, broker.is_active, broker.online_log_dirs)


def changes_elections(old: MetadataImage, new: MetadataImage, changes: Changes) -> bool:
    """Whether the rules by which leaders are chosen have changed for any topic."""
    if ELIGIBLE_LEADER_REPLICAS_VERSION in changes.features:
        return True
    return any(
        old.resource_config(*key).get(name) != new.resource_config(*key).get(name)
        for key in changes.configs
        for name in ELECTION_CONFIGS
    )
