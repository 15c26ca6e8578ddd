"""The settings of the transaction coordinator."""

from __future__ import annotations

from pykraft.configuration.settings import Settings, setting
from pykraft.lazy_dataclass import dataclass

_WRITE_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class TransactionConfig(Settings):
    """``max_timeout_ms``: the longest timeout that a producer may ask for. ``id_expiration_ms``: how long a
    transactional id without a transaction is remembered.
    """

    max_timeout_ms: int = setting("transaction.max.timeout.ms")
    id_expiration_ms: int = setting("transactional.id.expiration.ms")
    num_partitions: int = setting("transaction.state.log.num.partitions")
    timeout_check_interval_ms: int = setting("transaction.abort.timed.out.transaction.cleanup.interval.ms")
    expiry_check_interval_ms: int = setting("transaction.remove.expired.transaction.cleanup.interval.ms")
    write_timeout_ms: int = _WRITE_TIMEOUT_MS
