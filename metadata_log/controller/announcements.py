"""The log lines about the records that the active controller appends.

They report what a client asked for and what an operator may have to act on: topics and configurations,
features, registrations of brokers and their ends, reassignments, unclean elections, partitions without a
leader. Other changes of leaders are not reported one by one, but as a number at the end of a sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.ids import uuid_to_str
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.features import METADATA_VERSION, level_name
from pykraft.metadata_log.image import MetadataImage, PartitionRegistration
from pykraft.metadata_log.records import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

MOST_LINES: Final = 10
"""The most lines for one batch. A request may name thousands of topics: the rest is only counted."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """One line. ``is_warning``: an operator may have to act."""

    text: str
    is_warning: bool = False


def announce(before: MetadataImage, records: Sequence[Record]) -> list[Announcement]:
    """The changes of ``before`` by one batch, warnings first, in at most ``MOST_LINES`` + 1 lines."""
    found = sorted(_iter_announcements(before, records), key=lambda it: not it.is_warning)
    if len(found) <= MOST_LINES:
        return found
    left_out = found[MOST_LINES:]
    rest = Announcement(f"and {len(left_out)} more changes", any(it.is_warning for it in left_out))
    return [*found[:MOST_LINES], rest]


def _iter_announcements(before: MetadataImage, records: Iterable[Record]) -> Iterator[Announcement]:
    for record in records:
        match record:
            case PartitionChangeRecord():
                yield from _partition_change(before, record)
            case TopicRecord(name=name):
                yield Announcement(f"topic {name} is created")
            case RemoveTopicRecord(topic_id=topic_id):
                yield Announcement(f"topic {before.topics_by_id[topic_id].name} is deleted")
            case ConfigRecord(name=name, value=value):
                change = f"{name} is reset to its default" if value is None else f"{name}={value}"
                yield Announcement(f"configuration of {_resource(record)}: {change}")
            case FeatureLevelRecord(name=name, feature_level=level):
                # Lowered only if the image holds nothing that would be lost.
                is_lowered = name == METADATA_VERSION and level < before.features.get(name, 0)
                at = f"feature {name} is at {level_name(name, level)}"
                yield Announcement(f"{at}: no metadata is lost" if is_lowered else at)
            case UnregisterBrokerRecord(broker_id=broker_id):
                yield Announcement(f"broker {broker_id} is unregistered")
            case BrokerRegistrationChangeRecord(broker_id=broker_id, offline_log_dirs=(_, *_) as offline):
                ids = ", ".join(map(uuid_to_str, offline))
                yield Announcement(f"broker {broker_id}: log directories {ids} have failed", is_warning=True)
            case BrokerRegistrationChangeRecord(broker_id=broker_id, cordoned_log_dirs=(_, *_) as cordoned):
                ids = ", ".join(map(uuid_to_str, cordoned))
                yield Announcement(f"broker {broker_id}: log directories {ids} get no new replicas")
            case BrokerRegistrationChangeRecord(broker_id=broker_id, cordoned_log_dirs=()):
                yield Announcement(f"broker {broker_id}: every log directory may get new replicas")
            case BrokerRegistrationChangeRecord(broker_id=broker_id, fenced=False):
                yield Announcement(f"broker {broker_id} is unfenced")
            case BrokerRegistrationChangeRecord(broker_id=broker_id, in_controlled_shutdown=True):
                yield Announcement(f"broker {broker_id} starts a controlled shutdown")
            case BrokerRegistrationChangeRecord(broker_id=broker_id, in_controlled_shutdown=False):
                yield Announcement(f"broker {broker_id} cancels its controlled shutdown")


def _resource(record: ConfigRecord) -> str:
    kind = ConfigResourceType(record.resource_type).name.lower()
    return f"{kind} {record.resource_name}" if record.resource_name else f"every {kind}"


def _partition_change(before: MetadataImage, record: PartitionChangeRecord) -> Iterator[Announcement]:
    old = before.partition(record.topic_id, record.partition_id)
    if old is None:
        return  # created by the same batch
    name = f"{before.topics_by_id[record.topic_id].name}-{record.partition_id}"
    if record.leader == NO_LEADER and old.has_leader:
        yield Announcement(f"{name} has no leader: it waits for {_awaited(old, record)}", is_warning=True)
    elif record.leader is not None and record.leader >= 0 and record.leader not in {*old.isr, *old.elr}:
        if record.leader in old.last_known_elr:
            yield Announcement(f"{name} is led again by {record.leader}, its last eligible leader")
        elif not _joined_with_this(before, old, record):
            yield Announcement(
                f"{name}: unclean election of {record.leader}, records may be lost", is_warning=True
            )
    adding = old.adding if record.adding_replicas is None else record.adding_replicas
    removing = old.removing if record.removing_replicas is None else record.removing_replicas
    replicas = list(old.replicas if record.replicas is None else record.replicas)
    if (adding, removing, sorted(replicas)) == (old.adding, old.removing, sorted(old.replicas)):
        return
    if adding or removing:
        yield Announcement(
            f"{name} is being reassigned: adding {list(adding)}, removing {list(removing)}, of {replicas}"
        )
    else:
        yield Announcement(f"reassignment of {name} has ended: replicas {replicas}")


def _joined_with_this(
    before: MetadataImage, old: PartitionRegistration, record: PartitionChangeRecord
) -> bool:
    """Whether the leader before has just brought the new one into the ISR, which has ended a reassignment.

    An unclean election leaves nobody in the ISR but who was elected.
    """
    leader_before = before.brokers.get(old.leader)
    is_alive = leader_before is not None and not leader_before.fenced
    return not set(old.isr).isdisjoint(record.isr or ()) or (record.leader in old.adding and is_alive)


def _awaited(old: PartitionRegistration, record: PartitionChangeRecord) -> str:
    """The brokers that could lead it without losing records."""
    isr = old.isr if record.isr is None else record.isr
    elr = old.elr if record.eligible_leader_replicas is None else record.eligible_leader_replicas
    holders = sorted({*isr, *elr})
    if not holders:
        return f"an unclean election among {list(old.replicas)}"
    return "broker " + " or ".join(map(str, holders))
