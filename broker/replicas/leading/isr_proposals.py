"""Sends the ISR proposals of one broker to the controller and applies the answers (KIP-497).

The due proposals of all partitions go into one AlterPartition request, and one request is in flight at a
time; proposals that become due meanwhile are collected for the next. So each broker sends the controller one
request per round trip, however many partitions there are. A request without an answer is followed by a pause
of the whole broker, a refusal by a pause of that partition alone; both grow exponentially, with jitter,
because all brokers fail at once when a controller does.

Decides what an answer means for a proposal:

- accepted: the partition takes the controller's state;
- the controller has committed a newer state (:data:`_NEWS_FOLLOWS`): the metadata log brings it, and until
  then nothing is proposed, for the answer would be the same. NEW_LEADER_ELECTED even means that the proposal
  was applied, and that this replica is no longer the leader;
- certainly not applied (:data:`_NOT_APPLIED`): the proposal is void, and may be made again later;
- any other error, or no answer: it may have been applied. The replicas that it would add still count as
  members.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from pykraft.broker.replicas.partition.isr import IsrProposal
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.ports import AlterPartitionPort, BrokerLease, ImageSource
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.alter_partition import MAX_PARTITIONS_PER_REQUEST
from pykraft.metadata_log.controller.calls.requests import IsrMember, PartitionIsrChange
from pykraft.runtime.backoff import Backoff, RandomSource
from pykraft.runtime.clock import Clock
from pykraft.runtime.tasks import TaskSupervisor

logger = logging.getLogger(__name__)

UNANSWERED_BACKOFF = Backoff(50, 2000)
REFUSED_BACKOFF = Backoff(500, 10_000)
_TIMER_SLACK_MS = 10
"""A timer of the event loop may fire a little before the clock says that its time has come."""
_NAMED_IN_LOG = 5

_NEWS_FOLLOWS = frozenset(
    {ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NEW_LEADER_ELECTED}
)
_NOT_APPLIED = frozenset(
    {ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST, ErrorCode.OPERATION_NOT_ATTEMPTED}
)

Proposed = tuple[Partition, IsrProposal]


class IsrProposals:
    """The ISR proposals of one broker.

    ``shrinks``, ``expansions`` and ``failures`` count what has become of them since the start.
    """

    def __init__(
        self,
        node_id: int,
        max_lag_ms: int,
        metadata: ImageSource,
        lease: BrokerLease,
        controller: AlterPartitionPort,
        clock: Clock,
        rng: RandomSource,
        tasks: TaskSupervisor,
    ) -> None:
        self._node_id = node_id
        self._max_lag_ms = max_lag_ms
        self._metadata = metadata
        self._lease = lease
        self._controller = controller
        self._clock = clock
        self._rng = rng
        self._tasks = tasks
        self._behind: dict[Partition, None] = {}
        self._due: dict[Partition, None] = {}
        self._is_sending = False
        self._unanswered = 0  # consecutive requests
        self.shrinks = 0
        self.expansions = 0
        self.failures = 0

    def maybe_propose(self, partition: Partition) -> None:
        """If this replica leads: propose a new ISR if a follower has caught up or fallen behind.

        The members are chosen when the proposal is sent.
        """
        if partition in self._due or not partition.needs_isr_change(
            self._clock.monotonic_ms(), self._max_lag_ms, self._is_eligible
        ):
            return
        self._due[partition] = None
        if not self._is_sending:
            self._is_sending = True
            self._tasks.start(self._send_all(), "isr-proposals")

    def expect_changes(self, partition: Partition) -> None:
        """A follower is behind, or the ISR has changed: look at this partition from time to time."""
        self._behind[partition] = None

    @property
    def behind(self) -> list[Partition]:
        """The partitions whose ISR may change as time passes; :meth:`check_lag` of each tells."""
        return list(self._behind)

    def check_lag(self, partitions: Iterable[Partition]) -> None:
        """Look for followers that have fallen behind; called from time to time."""
        for partition in partitions:
            if partition.is_in_sync:
                self._behind.pop(partition, None)
            else:
                self.maybe_propose(partition)

    def _is_eligible(self, replica: int, broker_epoch: int) -> bool:
        broker = self._metadata.image.brokers.get(replica)
        return broker is not None and broker.is_active and broker_epoch in (-1, broker.epoch)

    async def _send_all(self) -> None:
        """Send one request after the other until no proposal is due."""
        try:
            while self._due:
                if self._unanswered:
                    await self._tasks.sleep(UNANSWERED_BACKOFF.delay_ms(self._unanswered, self._rng))
                proposed = self._take_due()
                if proposed:
                    await self._send(proposed)
        finally:
            self._is_sending = False

    def _take_due(self) -> list[Proposed]:
        """The due proposals, as many as fit into one request; from here on they count as pending."""
        now_ms = self._clock.monotonic_ms()
        proposed: list[Proposed] = []
        while self._due and len(proposed) < MAX_PARTITIONS_PER_REQUEST:
            partition = next(iter(self._due))
            del self._due[partition]
            proposal = partition.next_proposal(now_ms, self._max_lag_ms, self._is_eligible)
            if proposal is not None:
                proposed.append((partition, proposal))
        return proposed

    async def _send(self, proposed: Sequence[Proposed]) -> None:
        try:
            answers = await self._controller.alter_partitions(
                [self._change(partition, proposal) for partition, proposal in proposed]
            )
        except KafkaError as failure:
            self._unanswered += 1
            logger.info("ISR changes of %d partitions were not answered: %s", len(proposed), failure)
            for partition, proposal in proposed:
                self.failures += 1
                partition.handle_isr_unanswered(proposal)
                self.maybe_propose(partition)
            return
        self._unanswered = 0
        refused: dict[tuple[ErrorCode, int], list[Proposed]] = {}
        for (partition, proposal), answer in zip(proposed, answers, strict=True):
            if answer.error is ErrorCode.NONE:
                logger.info("%s: ISR is now %s", partition, list(answer.isr))
                self._count(len(partition.isr.committed), len(answer.isr))
                partition.handle_isr_accepted(proposal, answer.isr, answer.partition_epoch, answer.elr)
                self.maybe_propose(partition)
            else:
                refused.setdefault((answer.error, partition.isr_refusals + 1), []).append(
                    (partition, proposal)
                )
        for (error, times), those in refused.items():
            self._take_refusal(those, error, times)

    def _count(self, before: int, after: int) -> None:
        """Shrinks and expansions as Kafka counts them; a change of the members only is neither."""
        self.shrinks += after < before
        self.expansions += after > before

    def _take_refusal(self, refused: Sequence[Proposed], error: ErrorCode, times: int) -> None:
        """The controller answered ``error`` for each of these, for the ``times``-th time in a row."""
        named = ", ".join(str(partition) for partition, _ in refused[:_NAMED_IN_LOG])
        self.failures += len(refused)
        logger.info("ISR changes of %d partitions were refused with %s: %s", len(refused), error.name, named)
        if error in _NEWS_FOLLOWS:
            return  # they stay pending until the metadata log brings the newer state
        delay_ms = REFUSED_BACKOFF.delay_ms(times, self._rng)
        retry_ms = self._clock.monotonic_ms() + delay_ms
        for partition, proposal in refused:
            partition.handle_isr_refused(proposal, retry_ms, outcome_known=error in _NOT_APPLIED)
        later = self._propose_later([partition for partition, _ in refused], delay_ms)
        self._tasks.start(later, "isr-proposals-again")

    async def _propose_later(self, partitions: Sequence[Partition], delay_ms: int) -> None:
        await self._tasks.sleep(delay_ms + _TIMER_SLACK_MS)
        for partition in partitions:
            self.maybe_propose(partition)

    def _change(self, partition: Partition, proposal: IsrProposal) -> PartitionIsrChange:
        epochs: Mapping[int, int] = {**proposal.broker_epochs, self._node_id: self._lease.epoch}
        return PartitionIsrChange(
            partition.topic_id,
            partition.index,
            proposal.leader_epoch,
            proposal.partition_epoch,
            tuple(IsrMember(replica, epochs.get(replica, -1)) for replica in proposal.new_isr),
        )
