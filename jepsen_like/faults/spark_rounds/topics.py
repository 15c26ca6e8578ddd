"""The topics of the run, and what is done to them while queries read and write them."""

import random
from contextlib import suppress
from typing import Final, Self

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.list_offsets import READ_COMMITTED, READ_UNCOMMITTED
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.enums import ElectionType
from pykraft.kafka_protocol.errors import KafkaError

SOURCE: Final = "source"
SINK: Final = "sink"
FIRST_PARTITIONS: Final = 3
SINK_PARTITIONS: Final = 3
CONFIGS: Final = {"min.insync.replicas": "2"}
"""What is acknowledged is in two places; without one of three brokers a partition can be written."""

_MOVED: Final = (SOURCE, SINK, "__transaction_state", "__consumer_offsets")
_LATEST: Final = -1
_TIMEOUT_MS: Final = 5_000


class Topics:
    """For one thread. A change that the cluster refuses, or does not answer, is left out."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._admin = AdminClient(bootstrap_servers, request_timeout_ms=2_000)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    def count(self, topic: str) -> int:
        """The number of partitions."""
        (described,) = self._admin.describe_topics([topic])
        return len(described.partitions)

    def grow(self, topic: str, most: int) -> int | None:
        """By one partition, up to ``most``: how many there are then."""
        with suppress(KafkaError, OSError):
            count = self.count(topic) + 1
            if count <= most:
                (grown,) = self._admin.create_partitions({topic: count}, timeout_ms=_TIMEOUT_MS)
                return count if grown.error is None else None
        return None

    def move(self, rng: random.Random) -> bool:
        """Move any partition to two or three brokers in another order; then elect its preferred leader."""
        with suppress(KafkaError, OSError):
            (described,) = self._admin.describe_topics([rng.choice(_MOVED)], timeout_ms=_TIMEOUT_MS)
            where = TopicPartition(described.name, rng.choice(described.partitions).index)
            brokers = [broker.id for broker in self._admin.describe_cluster(timeout_ms=_TIMEOUT_MS).brokers]
            replicas = rng.sample(sorted(brokers), min(len(brokers), rng.choice((2, 3, 3))))
            if len(replicas) < 2:
                return False
            (moved,) = self._admin.alter_partition_reassignments({where: replicas}, timeout_ms=_TIMEOUT_MS)
            self._admin.elect_leaders(ElectionType.PREFERRED, [where], timeout_ms=_TIMEOUT_MS)
            return moved.error is None
        return False

    def ends(self, topic: str) -> dict[TopicPartition, int]:
        return self._ends(topic, READ_UNCOMMITTED)

    def open_transactions(self, topic: str) -> list[str]:
        """Partitions whose end is beyond what is stable."""
        ends, stable = self.ends(topic), self._ends(topic, READ_COMMITTED)
        return [str(partition) for partition, end in ends.items() if stable[partition] != end]

    def _ends(self, topic: str, isolation_level: int) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(
            (TopicPartition(topic, number) for number in range(self.count(topic))), _LATEST
        )
        listed = self._admin.list_offsets(wanted, isolation_level=isolation_level)
        return {partition: found.offset or 0 for partition, found in listed.items()}
