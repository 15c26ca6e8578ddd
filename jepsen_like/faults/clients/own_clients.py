"""Workloads' clients through pykraft's own, on any event loop: in virtual time, and on real processes.

Needs only a network on that loop, the brokers' addresses, a source of randomness and a wall clock.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle

from pykraft.jepsen_like.faults.clients.interface import (
    Member,
    MemberConfig,
    PlainTransactionalProducer,
    Producer,
    ProducerConfig,
    Reader,
    TransactionalConfig,
    TransactionalProducer,
)
from pykraft.jepsen_like.faults.clients.own_admin import OwnAdmin, client_config
from pykraft.jepsen_like.faults.clients.own_member import OwnMember
from pykraft.jepsen_like.faults.clients.own_producer import OwnProducer
from pykraft.jepsen_like.faults.clients.own_reader import RACK_MAX_AGE_MS, OwnReader
from pykraft.jepsen_like.faults.clients.own_requests import OwnRequests
from pykraft.jepsen_like.faults.clients.own_transactions import OwnTransactions
from pykraft.jepsen_like.faults.clients.plain_transactions import PlainTransactions
from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.fetcher import FetchConfig
from pykraft.kafka_client.group.config import OwnershipListener
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import ConcurrentNetwork, parse_bootstrap_servers
from pykraft.runtime.address import Address


class OwnClients:
    """Opens the clients of a cluster at ``addresses``; opening waits for no response, and needs no cluster.

    Other clients derive from it, and have their own of what there is of them. ``racks``: of the readers and
    members, in turns; those of "" read from leaders only (KIP-392).
    """

    prefix = ""
    """Begins the names of topics, groups and transactional ids, on a cluster that others use, too."""
    most_replicas = 3
    """A topic cannot have more on that cluster."""

    def __init__(
        self,
        network: ConcurrentNetwork,
        addresses: tuple[Address, ...],
        rng: random.Random,
        wall_ms: Callable[[], int],
        racks: Sequence[str] = ("",),
    ) -> None:
        self._network = network
        self._addresses = addresses
        self._rng = rng
        self.wall_ms = wall_ms
        """The time that clients write into records."""
        self._racks = cycle(racks)

    def producer(self, config: ProducerConfig) -> Producer:
        return OwnProducer(self._network, self._config(config.name), config)

    def transactional(self, config: TransactionalConfig) -> TransactionalProducer:
        """A real client."""
        return OwnTransactions(self._network, self._config(config.name), config, self.wall_ms)

    def plain_transactional(self, config: TransactionalConfig) -> PlainTransactionalProducer:
        return PlainTransactions(self._network, self._config(config.name), config, self.wall_ms)

    def reader(
        self, name: str, positions: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> Reader:
        """``committed``: only what committed transactions have written (read_committed)."""
        return OwnReader(self._network, self._config(name), positions, next(self._racks), committed=committed)

    def member(self, config: MemberConfig, listener: OwnershipListener) -> Member:
        """``heartbeat`` of the listener is called by clients that show theirs."""
        chance = random.Random(self._rng.random())
        fetch = FetchConfig(rack=next(self._racks), metadata_max_age_ms=RACK_MAX_AGE_MS)
        return OwnMember(self._network, self._config(config.name), config, listener, chance, fetch)

    def admin(self, name: str) -> OwnAdmin:
        return OwnAdmin(self._network, self._config(name))

    def requests(self, name: str) -> OwnRequests:
        return OwnRequests(self._network, self._config(name))

    def _config(self, name: str) -> ClientConfig:
        return client_config(self._addresses, name)

    def close(self) -> None:
        """Everything opened must have been closed or abandoned. May block."""


class RealClients(OwnClients):
    """On real sockets, with the machine's clock and randomness."""

    def __init__(self, bootstrap_servers: str) -> None:
        addresses = parse_bootstrap_servers(bootstrap_servers)
        super().__init__(AsyncioNetwork(), addresses, random.Random(), lambda: time.time_ns() // 1_000_000)
