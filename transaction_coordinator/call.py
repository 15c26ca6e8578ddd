"""A handler's other arguments, besides state and request: time, new ids and other partitions."""

from __future__ import annotations

from collections.abc import Callable

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.lazy_dataclass import dataclass
from pykraft.transaction_coordinator.config import TransactionConfig
from pykraft.transaction_coordinator.transaction import TransactionVersion


class NeedsProducerIdError(Exception):
    """The decision needs a producer id that was never used: get one, and decide again on the newest state."""


@dataclass(slots=True)
class Call:
    """``version`` is that of the request; ``wall_ms`` the timestamp of records; ``transaction_version`` the
    finalized feature. ``has_partition`` tells whether the cluster has a partition of a topic.
    ``offsets_partition``: for AddOffsetsToTxn, the partition of ``__consumer_offsets`` that holds the group.
    """

    config: TransactionConfig
    version: int
    wall_ms: int
    transaction_version: TransactionVersion
    has_partition: Callable[[str, int], bool]
    new_producer_id: int | None = None
    offsets_partition: int = -1

    def take_producer_id(self) -> int:
        """An id that was never used; :class:`NeedsProducerIdError` if none is at hand."""
        if self.new_producer_id is None:
            raise NeedsProducerIdError
        return self.new_producer_id

    def check_served(self, client_version: TransactionVersion) -> None:
        """UNSUPPORTED_VERSION for a client of TV_2 as long as records cannot say that its transaction is one.

        Clients go by the finalized feature and never get here, unless it was lowered a moment ago.
        """
        if client_version > TransactionVersion.TV_0 and self.transaction_version is TransactionVersion.TV_0:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "Transactions of version 2 need transaction.version 1 or 2."
            )
