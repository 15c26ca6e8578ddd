"""Where the processes of a cluster listen."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pykraft.runtime.address import Address

LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Listeners:
    """Where one node listens: to clients and brokers, to controllers (gRPC), to Kafka's admin clients."""

    broker: Address
    controller: Address
    kafka_controller: Address

    def __iter__(self) -> Iterator[Address]:
        return iter((self.broker, self.controller, self.kafka_controller))
