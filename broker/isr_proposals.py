"""Carries ISR proposals from partitions to the controller and its answers back, one per partition at a time.

Decides only which answers mean that a proposal was certainly not applied; after all others the partition goes
on counting whom it wanted to add, until the controller's word settles it. (NEW_LEADER_ELECTED even means that
it was applied, and that this replica leads no more.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine

from pykraft.broker.isr import IsrProposal
from pykraft.broker.partition import Partition
from pykraft.broker.ports import AlterPartitionPort, BrokerLease, ImageSource
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.clock import Clock

logger = logging.getLogger(__name__)

RETRY_MS = 500
#: Answers after which a proposal is known not to have been applied.
_REFUSED_FOR_GOOD = frozenset(
    {ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST, ErrorCode.OPERATION_NOT_ATTEMPTED}
)

Spawn = Callable[[Coroutine[object, object, None]], None]
CallLater = Callable[[int, Callable[[], None]], None]
"""(milliseconds, callback)"""


class IsrProposals:
    """The proposals of one broker."""

    def __init__(
        self,
        node_id: int,
        max_lag_ms: int,
        metadata: ImageSource,
        lease: BrokerLease,
        controller: AlterPartitionPort,
        clock: Clock,
        spawn: Spawn,
        call_later: CallLater,
    ) -> None:
        self._node_id = node_id
        self._max_lag_ms = max_lag_ms
        self._metadata = metadata
        self._lease = lease
        self._controller = controller
        self._clock = clock
        self._spawn = spawn
        self._call_later = call_later

    def maybe_propose(self, partition: Partition) -> None:
        """Ask for a new ISR if a follower has caught up or fallen behind. Nothing if it does not lead."""
        proposal = partition.next_proposal(self._clock.monotonic_ms(), self._max_lag_ms, self._is_eligible)
        if proposal is not None:
            self._spawn(self._propose(partition, proposal))

    def _is_eligible(self, replica: int, broker_epoch: int) -> bool:
        broker = self._metadata.image.brokers.get(replica)
        return broker is not None and broker.is_active and broker_epoch in (-1, broker.epoch)

    async def _propose(self, partition: Partition, proposal: IsrProposal) -> None:
        epochs = {**proposal.broker_epochs, self._node_id: self._lease.epoch}
        members = [(replica, epochs.get(replica, -1)) for replica in proposal.new_isr]
        try:
            answer = await self._controller.alter_partition(
                partition.topic_id,
                partition.index,
                proposal.leader_epoch,
                proposal.partition_epoch,
                members,
            )
            error = answer.error
        except KafkaError as failure:
            answer, error = None, failure.code
        if answer is not None and error is ErrorCode.NONE:
            logger.info("%s: ISR is now %s", partition, list(answer.isr))
            partition.handle_isr_accepted(proposal, answer.isr, answer.partition_epoch, answer.elr)
            self.maybe_propose(partition)
            return
        logger.info("%s: ISR %s refused: %s", partition, list(proposal.new_isr), error.name)
        retry_ms = self._clock.monotonic_ms() + RETRY_MS
        partition.handle_isr_refused(proposal, retry_ms, outcome_known=error in _REFUSED_FOR_GOOD)
        self._call_later(RETRY_MS + 10, lambda: self.maybe_propose(partition))
