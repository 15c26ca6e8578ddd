"""Operators' work on a cluster, with pykraft's own admin client: voters, replicas, registrations.

A request of a fault may be refused or remain unanswered, since other faults are in force. Then the fault is
not possible now, unless the request may have been carried out. What repairs a fault is repeated until the
cluster is as it was.
"""

import errno
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, Self, TypeVar

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.kind import NotPossibleNowError
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.results import PartitionDescription
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.log_store.meta_properties import read_meta_properties
from pykraft.runtime.os_disk import OsDisk
from pykraft.testing.processes.waits import Deadline, WaitError

T = TypeVar("T")

REPAIR_TIMEOUT_S: Final = 300.0
"""Other faults may be in force for most of it; runs are shorter."""
_REFUSALS: Final = frozenset(
    {
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.VOTER_NOT_FOUND,
    }
)
_RETRY_AFTER_S: Final = 0.3
_REQUEST_TIMEOUT_MS: Final = 5_000

Placements = Mapping[TopicPartition, tuple[int, ...]]
"""The replicas of partitions, the preferred leader first."""


class Administrator:
    """For one thread. A context manager."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self._cluster = cluster
        self.client = AdminClient(
            cluster.bootstrap_servers,
            client_id="administrator",
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            default_api_timeout_ms=_REQUEST_TIMEOUT_MS,
            connect_timeout_ms=1_000,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def ask(self, request: Callable[[], T]) -> T:
        """The answer to a request that changes nothing; :class:`NotPossibleNowError` if there is none."""
        try:
            return request()
        except KafkaError as error:
            raise NotPossibleNowError(str(error)) from error

    def change(self, request: Callable[[], object]) -> None:
        """Request a change; :class:`NotPossibleNowError` only if it was certainly not carried out."""
        try:
            request()
        except KafkaError as error:
            if error.code in _REFUSALS:
                raise NotPossibleNowError(str(error)) from error

    def until(self, what: str, is_done: Callable[[], bool], timeout_s: float = REPAIR_TIMEOUT_S) -> None:
        """Repeat ``is_done`` until it holds; errors of the cluster and of its disks count as no.
        :class:`WaitError` if it does not in time, or if the cluster has been ended."""
        deadline, last = Deadline(timeout_s), ""
        while True:
            try:
                if is_done():
                    return
            except (KafkaError, OSError) as error:
                last = f" ({error})"
            if deadline.passed or self._cluster.ended:
                raise WaitError(f"{what}: not within {timeout_s:.0f} s{last}")
            time.sleep(_RETRY_AFTER_S)

    # --- voters --------------------------------------------------------------------------------------------

    def voters(self) -> dict[int, Uuid]:
        """Directory ids by node id."""
        return {voter.replica_id: voter.directory_id for voter in self.client.describe_quorum().voters}

    def is_voter(self, node_id: int) -> bool:
        """Whether the node votes; asks for it if it does not. :class:`KafkaError` if that is refused now."""
        directory_id = self._directory_id(node_id)
        voters = self.voters()
        if voters.get(node_id) == directory_id:
            return True
        if node_id in voters:
            self.client.remove_raft_voter(node_id, voters[node_id])
        endpoints = {"CONTROLLER": self._cluster.listeners[node_id].controller}
        self.client.add_raft_voter(node_id, directory_id, endpoints)
        return True

    def is_no_voter(self, node_id: int) -> bool:
        """Whether the node does not vote; asks for it if it does."""
        directory_id = self.voters().get(node_id)
        if directory_id is not None:
            self.client.remove_raft_voter(node_id, directory_id)
        return True

    def _directory_id(self, node_id: int) -> Uuid:
        """:class:`OSError` while its disk cannot be read, or is not there."""
        directory = self._cluster.log_dir(node_id)
        properties = read_meta_properties(OsDisk(), str(directory))
        if properties is None:
            raise FileNotFoundError(errno.ENOENT, "no meta.properties", str(directory))
        return properties.directory_id

    # --- replicas ------------------------------------------------------------------------------------------

    def brokers(self) -> list[int]:
        """Ids of those that are registered and not fenced."""
        return [broker.id for broker in self.client.describe_cluster().brokers]

    def partitions(self, *, internal: bool = True) -> Iterator[tuple[TopicPartition, PartitionDescription]]:
        """All of them, or all but those of internal topics."""
        topics = [topic.name for topic in self.client.list_topics(include_internal=internal)]
        for topic in self.client.describe_topics(topics):
            for partition in topic.partitions:
                yield TopicPartition(topic.name, partition.index), partition

    def placements(self, *, internal: bool = True) -> dict[TopicPartition, tuple[int, ...]]:
        """Those of all topics, or of all but the internal ones; of moves under way where they began."""
        moving = self.client.list_partition_reassignments()
        return {
            place: tuple(
                id for id in partition.replicas if place not in moving or id not in moving[place].adding
            )
            for place, partition in self.partitions(internal=internal)
        }

    def move(self, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Begin to move partitions, or cancel moves; those that are refused stay where they are."""
        if wanted:
            self.client.alter_partition_reassignments(wanted)

    def is_placed(self, wanted: Placements, gone: Collection[int] = ()) -> bool:
        """Whether these partitions have these replicas, all in sync, and no other one has a replica on a
        broker of ``gone``; asks for what is not so. Partitions that no longer exist do not count."""
        moving = self.client.list_partition_reassignments()
        wrong: dict[TopicPartition, Sequence[int]] = {}
        settled = True
        for place, partition in self.partitions():
            target = wanted.get(place, tuple(id for id in partition.replicas if id not in gone))
            move = moving.get(place)
            removing = () if move is None else move.removing
            if tuple(id for id in partition.replicas if id not in removing) != target:
                wrong[place] = target
            settled = settled and move is None and set(partition.isr) == set(target)
        self.move(wrong)
        return settled and not wrong
