"""The followers' side of replication: which partition is fetched from which leader, over which connection.

Each leader has ``num.replica.fetchers`` links (:mod:`pykraft.broker.replicas.following.leader_link`); a hash
of topic and index chooses one.
"""

from __future__ import annotations

from pykraft.broker.config import BrokerConfig
from pykraft.broker.replicas.following.leader_link import LeaderLink
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.ports import BrokerLease, ImageSource
from pykraft.broker.replicas.replication_quota import ReplicationQuotas
from pykraft.runtime.clock import Clock
from pykraft.runtime.network.tcp import StreamRuntime
from pykraft.runtime.tasks import TaskSupervisor


class ReplicaFetchers:
    """The links to all leaders that this broker follows."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ImageSource,
        lease: BrokerLease,
        quotas: ReplicationQuotas,
        runtime: StreamRuntime,
        clock: Clock,
        tasks: TaskSupervisor,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._lease = lease
        self._quota = quotas.follower
        self._runtime = runtime
        self._clock = clock
        self._tasks = tasks
        self._fetchers = config.num_replica_fetchers
        self._links: dict[tuple[int, int], LeaderLink] = {}
        self._link_of: dict[Partition, LeaderLink] = {}

    def follow(self, partition: Partition) -> None:
        """Fetch from the partition's current leader, in its current epoch."""
        leader = partition.leader_id
        assert leader is not None and leader != self._config.node_id
        self.unfollow(partition)
        key = leader, fetcher_id(partition.topic, partition.index, self._fetchers)
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = LeaderLink(
                self._config,
                self._metadata,
                self._lease,
                self._quota,
                self._runtime,
                self._clock,
                self._tasks,
                *key,
            )
        self._link_of[partition] = link
        link.add(partition)

    def unfollow(self, partition: Partition) -> None:
        link = self._link_of.pop(partition, None)
        if link is not None:
            link.remove(partition)

    def state_changed(self, partition: Partition) -> None:
        """Tell the partition's link that its next fetch may have something else to say."""
        link = self._link_of.get(partition)
        if link is not None:
            link.state_changed(partition)

    def fetch_soon(self, partition: Partition) -> None:
        """Tell the leader what is stored by now, without waiting for the end of the current poll."""
        link = self._link_of.get(partition)
        if link is not None:
            link.state_changed(partition)
            link.fetch_soon()

    def set_fetchers(self, fetchers: int) -> None:
        """Use that many links for each leader from now on (``num.replica.fetchers``)."""
        if fetchers == self._fetchers:
            return
        self._fetchers = fetchers
        for partition in list(self._link_of):
            self.follow(partition)
        for key in [key for key in self._links if key[1] >= fetchers]:
            self._links.pop(key).close()

    def throttles_changed(self) -> None:
        """Let links fetch again what waited for the limit."""
        for link in self._links.values():
            link.end_pauses()

    def brokers_changed(self) -> None:
        """Leaders may have new addresses, or may be reachable again."""
        for key in sorted(self._links):
            self._links[key].endpoint_changed()

    async def stop(self) -> None:
        for key in sorted(self._links):
            await self._links[key].stop()


_INT_MIN = -(2**31)


def fetcher_id(topic: str, index: int, fetchers: int) -> int:
    """Kafka's choice: ``abs(31 * hash(topic) + index) % fetchers``, in Java's 32-bit arithmetic."""
    value = _to_int32(31 * _java_hash(topic) + index)
    return (0 if value == _INT_MIN else abs(value)) % fetchers


def _java_hash(text: str) -> int:
    value = 0
    for character in text:
        value = _to_int32(31 * value + ord(character))
    return value


def _to_int32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31
