"""How much of the transactions workload there is, and of what."""

from dataclasses import dataclass
from typing import Final

APPENDED: Final = {"txn-a": 3, "txn-b": 2}
INPUT: Final = {"txn-in": 2}
OUTPUT: Final = {"txn-out": 2}
TOPICS: Final = {**APPENDED, **INPUT, **OUTPUT}
GROUP: Final = "txn-workers"
POLL_S: Final = 0.2
RETRY_S: Final = 0.5
CLOSE_S: Final = 90.0
TIMEOUTS_MS: Final = (2_000, 5_000, 10_000)
ZOMBIE_TRANSACTIONS: Final = 4
"""How many more an instance tries that was replaced."""
SCAN_S: Final = 2.0
"""How often coordinators look for transactions that take too long, and some time to write markers."""


@dataclass(frozen=True, slots=True)
class TransactionsConfig:
    """``rest_s`` is the mean time between two transactions of an appender. The shares are of transactions.

    ``plain_share``: of the clients that may break rules on purpose (:class:`.TransactionalConfig`);
    ``old_share``: of these, those that go by the old rules. ``peek_share``: of the transactions that read one
    of their partitions before they end. ``flush_messages`` is the topics'.
    """

    appenders: int = 3
    rest_s: float = 0.3
    abort_share: float = 0.25
    pause_share: float = 0.03
    late_share: float = 0.05
    zombie_late_share: float = 0.3
    zombie_share: float = 0.04
    replace_share: float = 0.03
    plain_share: float = 0.5
    old_share: float = 0.3
    peek_share: float = 0.0
    flush_messages: int | None = None
