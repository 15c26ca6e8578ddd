"""Workloads' clients through pykraft's own, on any event loop: in virtual time, and on real processes.

Needs only a network on that loop, the brokers' addresses, a source of randomness and a wall clock.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle

from pykraft.jepsen_like.faults.clients.interface import (
    MemberConfig,
    OwnershipListener,
    ProducerConfig,
    TransactionalConfig,
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
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import ConcurrentNetwork, parse_bootstrap_servers
from pykraft.runtime.address import Address


class OwnClients:
    """:class:`~pykraft.jepsen_like.faults.clients.interface.Clients` of a cluster at ``addresses``.

    ``racks``: of the readers and members, in turns; those of "" read from leaders only (KIP-392).
    """

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
        self._racks = cycle(racks)

    def producer(self, config: ProducerConfig) -> OwnProducer:
        return OwnProducer(self._network, self._config(config.name), config)

    def transactional(self, config: TransactionalConfig) -> OwnTransactions:
        return OwnTransactions(self._network, self._config(config.name), config, self.wall_ms)

    def plain_transactional(self, config: TransactionalConfig) -> PlainTransactions:
        return PlainTransactions(self._network, self._config(config.name), config, self.wall_ms)

    def reader(
        self, name: str, positions: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> OwnReader:
        return OwnReader(self._network, self._config(name), positions, next(self._racks), committed=committed)

    def member(self, config: MemberConfig, listener: OwnershipListener) -> OwnMember:
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
        """Do nothing: the opened clients share no resources."""


def own_clients(bootstrap_servers: str) -> OwnClients:
    """On real sockets, with the machine's clock and randomness."""
    addresses = parse_bootstrap_servers(bootstrap_servers)
    return OwnClients(AsyncioNetwork(), addresses, random.Random(), lambda: time.time_ns() // 1_000_000)
