"""The invariants of every metadata image, and of every step from one image to a later one.

They have names, so that a test or a simulation can say which one is broken. Images are taken at batch
boundaries; inside a batch the invariants need not hold. Partitions follow their brokers in a sweep
(:mod:`.controller.sweeps`): until the sweep is complete, a partition may name a leader or an ISR member that
is not active. These checks walk the whole image and are not meant for a running node.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.election_rules import find_rules
from pykraft.metadata_log.image import MetadataImage, PartitionRegistration, required_in_sync
from pykraft.metadata_log.records import MIGRATING_DIRECTORY, NO_LEADER, UNASSIGNED_DIRECTORY


def check_image(image: MetadataImage) -> None:
    """:class:`InvariantViolation` for the first invariant the image breaks."""
    _check(IMAGE_INVARIANTS, image)


def check_step(old: MetadataImage, new: MetadataImage) -> None:
    """:class:`InvariantViolation` for the first invariant broken by going from ``old`` to ``new``."""
    _check(STEP_INVARIANTS, old, new)


def check_final(image: MetadataImage) -> None:
    """As :func:`check_image`, for an image after the sweep that follows the last change of brokers."""
    _check(FINAL_INVARIANTS, image)


def check_batch(old: MetadataImage, new: MetadataImage) -> None:
    """As :func:`check_step`, for two images with one batch between them."""
    check_step(old, new)
    _check(BATCH_INVARIANTS, old, new)


def _check(invariants: Mapping[str, Callable[..., Iterator[str]]], *images: MetadataImage) -> None:
    for name, violations in invariants.items():
        for detail in violations(*images):
            raise InvariantViolation(name, detail)


def _partitions(image: MetadataImage) -> Iterator[tuple[str, PartitionRegistration]]:
    for topic in image.topics_by_id.values():
        for index, partition in enumerate(topic.partitions):
            yield f"{topic.name}-{index}", partition


def _isr_empty_only_without_leader(image: MetadataImage) -> Iterator[str]:
    yield from (name for name, partition in _partitions(image) if partition.has_leader and not partition.isr)


def _eligible_are_replicas_outside_the_isr(image: MetadataImage) -> Iterator[str]:
    for name, partition in _partitions(image):
        if not set(partition.elr) <= set(partition.replicas) - set(partition.isr):
            yield f"{name} {partition}"


def _last_leader_known_only_without_leader(image: MetadataImage) -> Iterator[str]:
    for name, partition in _partitions(image):
        if partition.last_known_elr and (partition.has_leader or partition.isr):
            yield f"{name} {partition}"


def _lost_are_counted_on_nowhere(image: MetadataImage) -> Iterator[str]:
    for name, partition in _partitions(image):
        counted = {*partition.isr, *partition.elr, *partition.last_known_elr, partition.leader}
        if not set(partition.lost) <= set(partition.replicas) - counted:
            yield f"{name} {partition}"


def _reassignment_names_replicas(image: MetadataImage) -> Iterator[str]:
    for name, partition in _partitions(image):
        coming, going, replicas = set(partition.adding), set(partition.removing), set(partition.replicas)
        if not replicas or len(replicas) != len(partition.replicas):
            yield f"{name} {partition}"
        if coming & going or not coming | going <= replicas or going == replicas:
            yield f"{name} {partition}"


def _isr_within_replicas(image: MetadataImage) -> Iterator[str]:
    for name, partition in _partitions(image):
        if not set(partition.isr) <= set(partition.replicas) or len(set(partition.isr)) != len(partition.isr):
            yield f"{name} {partition}"


def _directories_are_of_replicas(image: MetadataImage) -> Iterator[str]:
    for name, partition in _partitions(image):
        if len(partition.directories) not in (0, len(partition.replicas)):
            yield f"{name} {partition}"


def _works(image: MetadataImage, partition: PartitionRegistration, broker_id: int) -> bool:
    """Whether the broker is active, and has not lost the directory of this replica."""
    if not image.is_active(broker_id):
        return False
    broker, directory = image.brokers[broker_id], partition.directory(broker_id)
    if directory in (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY):
        return True
    return directory in broker.log_dirs and directory not in broker.offline_log_dirs


def _leader_in_isr_or_none(image: MetadataImage) -> Iterator[str]:
    for name, partition in _partitions(image):
        if partition.leader != NO_LEADER and partition.leader not in partition.isr:
            yield f"{name} {partition}"


def _led_partitions_have_active_isr(image: MetadataImage) -> Iterator[str]:
    for name, partition in _partitions(image):
        if partition.leader != NO_LEADER and not all(_works(image, partition, id) for id in partition.isr):
            yield f"{name} {partition}"


def _leaderless_only_without_active_isr(image: MetadataImage) -> Iterator[str]:
    for name, partition in _partitions(image):
        if partition.leader == NO_LEADER and any(_works(image, partition, id) for id in partition.isr):
            yield f"{name} {partition}"


def _leaderless_only_without_active_eligible(image: MetadataImage) -> Iterator[str]:
    for name, partition in _partitions(image):
        if partition.leader == NO_LEADER and any(_works(image, partition, id) for id in partition.elr):
            yield f"{name} {partition}"


def _eligible_only_where_they_are_kept(image: MetadataImage) -> Iterator[str]:
    for name, partition in _partitions(image):
        if not image.elr_enabled and (partition.elr or partition.last_known_elr):
            yield f"{name} {partition}"


def _eligible_only_below_the_minimum(image: MetadataImage) -> Iterator[str]:
    for topic in image.topics_by_id.values():
        min_isr = find_rules(image, ControllerConfig(), topic.name).min_isr
        for index, partition in enumerate(topic.partitions):
            if partition.elr and len(partition.isr) >= required_in_sync(min_isr, partition.replicas):
                yield f"{topic.name}-{index} {partition}, min.insync.replicas is {min_isr}"


def _names_and_ids_agree(image: MetadataImage) -> Iterator[str]:
    if {topic.name: id for id, topic in image.topics_by_id.items()} != dict(image.topic_ids.items()):
        yield "names and ids of topics differ"


def _configs_belong_to_topics(image: MetadataImage) -> Iterator[str]:
    for resource_type, name in image.configs:
        if resource_type == ConfigResourceType.TOPIC and name not in image.topic_ids:
            yield f"configuration of topic {name}, which does not exist"


def _offset_moves_forward(old: MetadataImage, new: MetadataImage) -> Iterator[str]:
    if new.offset < old.offset or new.epoch < old.epoch:
        yield f"offset {old.offset} → {new.offset}, epoch {old.epoch} → {new.epoch}"


def _partition_epochs_monotone(old: MetadataImage, new: MetadataImage) -> Iterator[str]:
    for name, before, after in _pairs(old, new):
        least = before.partition_epoch if before == after else before.partition_epoch + 1
        if after.leader_epoch < before.leader_epoch or after.partition_epoch < least:
            yield f"{name} {before} → {after}"


def _new_leader_new_epoch(old: MetadataImage, new: MetadataImage) -> Iterator[str]:
    for name, before, after in _pairs(old, new):
        if after.leader != before.leader and after.leader_epoch <= before.leader_epoch:
            yield f"{name} {before} → {after}"


def _partitions_never_vanish(old: MetadataImage, new: MetadataImage) -> Iterator[str]:
    for topic_id, before in old.topics_by_id.items():
        after = new.topics_by_id.get(topic_id)
        if after is not None and len(after.partitions) < len(before.partitions):
            yield before.name


def _broker_epochs_monotone(old: MetadataImage, new: MetadataImage) -> Iterator[str]:
    for id, before in old.brokers.items():
        after = new.brokers.get(id)
        if after is None:
            continue
        if after.epoch < before.epoch:
            yield f"broker {id}: {before.epoch} → {after.epoch}"
        if after.incarnation_id != before.incarnation_id and after.epoch == before.epoch:
            yield f"broker {id}: two processes with epoch {after.epoch}"


def _producer_ids_monotone(old: MetadataImage, new: MetadataImage) -> Iterator[str]:
    if new.next_producer_id < old.next_producer_id:
        yield f"{old.next_producer_id} → {new.next_producer_id}"


def _leaders_are_chosen_among_the_active(old: MetadataImage, new: MetadataImage) -> Iterator[str]:
    for name, before, after in _pairs(old, new):
        if after.leader not in (before.leader, NO_LEADER) and not _works(new, after, after.leader):
            yield f"{name} {before} → {after}"


def _isrs_gain_only_the_active(old: MetadataImage, new: MetadataImage) -> Iterator[str]:
    for name, before, after in _pairs(old, new):
        # Without ELR the replicas that hold the records replace an empty ISR, active or not, without a
        # leader.
        gained = set(after.isr) - set(before.isr)
        if after.leader != NO_LEADER and not all(_works(new, after, id) for id in gained):
            yield f"{name} {before} → {after}"


def _brokers_become_active_when_swept(old: MetadataImage, new: MetadataImage) -> Iterator[str]:
    returned = {id for id in new.brokers if new.is_active(id) and not old.is_active(id)}
    if returned:
        for name, partition in _partitions(old):
            if partition.leader != NO_LEADER and not returned.isdisjoint((partition.leader, *partition.isr)):
                yield f"{name} {partition}: {sorted(returned)} became active"


def _pairs(
    old: MetadataImage, new: MetadataImage
) -> Iterator[tuple[str, PartitionRegistration, PartitionRegistration]]:
    for topic_id, before in old.topics_by_id.items():
        after = new.topics_by_id.get(topic_id)
        if after is not None and after is not before:
            for index, (left, right) in enumerate(zip(before.partitions, after.partitions, strict=False)):
                yield f"{before.name}-{index}", left, right


IMAGE_INVARIANTS: Final[Mapping[str, Callable[[MetadataImage], Iterator[str]]]] = {
    "isr_empty_only_without_leader": _isr_empty_only_without_leader,
    "eligible_are_replicas_outside_the_isr": _eligible_are_replicas_outside_the_isr,
    "last_leader_known_only_without_leader": _last_leader_known_only_without_leader,
    "lost_are_counted_on_nowhere": _lost_are_counted_on_nowhere,
    "reassignment_names_replicas": _reassignment_names_replicas,
    "isr_within_replicas": _isr_within_replicas,
    "directories_are_of_replicas": _directories_are_of_replicas,
    "leader_in_isr_or_none": _leader_in_isr_or_none,
    "names_and_ids_agree": _names_and_ids_agree,
    "configs_belong_to_topics": _configs_belong_to_topics,
}

FINAL_INVARIANTS: Final[Mapping[str, Callable[[MetadataImage], Iterator[str]]]] = {
    "led_partitions_have_active_isr": _led_partitions_have_active_isr,
    "leaderless_only_without_active_isr": _leaderless_only_without_active_isr,
    "leaderless_only_without_active_eligible": _leaderless_only_without_active_eligible,
    "eligible_only_where_they_are_kept": _eligible_only_where_they_are_kept,
    "eligible_only_below_the_minimum": _eligible_only_below_the_minimum,
}

STEP_INVARIANTS: Final[Mapping[str, Callable[[MetadataImage, MetadataImage], Iterator[str]]]] = {
    "offset_moves_forward": _offset_moves_forward,
    "partition_epochs_monotone": _partition_epochs_monotone,
    "new_leader_new_epoch": _new_leader_new_epoch,
    "partitions_never_vanish": _partitions_never_vanish,
    "broker_epochs_monotone": _broker_epochs_monotone,
    "producer_ids_monotone": _producer_ids_monotone,
}

BATCH_INVARIANTS: Final[Mapping[str, Callable[[MetadataImage, MetadataImage], Iterator[str]]]] = {
    "leaders_are_chosen_among_the_active": _leaders_are_chosen_among_the_active,
    "isrs_gain_only_the_active": _isrs_gain_only_the_active,
    "brokers_become_active_when_swept": _brokers_become_active_when_swept,
}
