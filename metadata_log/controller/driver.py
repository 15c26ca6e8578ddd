"""Runs a :class:`ControllerCore` on the quorum: proposes records, releases responses at the high watermark.

Every node with the controller role runs one. It is active while its own replica leads: a command is decided,
its records are appended as one batch and replayed at once, and its response is held until they are committed.
A decision with very many records is made and replayed in slices, and nothing else is decided meanwhile. A
response without records is held until everything it may be based on is committed, so no client ever sees a
state that could still be reverted. When leadership is lost, the core reverts to the committed image and
waiting callers get NOT_CONTROLLER. The node's :class:`~pykraft.metadata_log.loader.MetadataLoader` is between
the quorum and this driver: it takes the results of the controller's own batches from here, and gives a
standby those of all others, so that a new active controller loads nothing. The decisions are in other files.
This file is long because every entry (calls, commits, timers, sweeps) ends in one append, in one epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from pykraft.kafka_protocol.codec.schema import Body, Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.codec import encode_record
from pykraft.metadata_log.controller.announcements import announce
from pykraft.metadata_log.controller.calls.forwarding import (
    AskedOfQuorum,
    DescribedQuorum,
    QuorumSituation,
    find_forwarded,
    wait_ms,
)
from pykraft.metadata_log.controller.calls.joined_answer import JoinedAnswer
from pykraft.metadata_log.controller.calls.rehearsal import Rehearsal
from pykraft.metadata_log.controller.calls.request_parts import cut_request
from pykraft.metadata_log.controller.calls.requests import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    LostReplicaResult,
    PartitionIsrResult,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RegisterControllerRequest,
    ReportLostReplicasRequest,
    ReportLostReplicasResponse,
)
from pykraft.metadata_log.controller.config import ControllerConfig, Rng
from pykraft.metadata_log.controller.core import ControllerCore
from pykraft.metadata_log.controller.leadership import LeadershipProof
from pykraft.metadata_log.controller.result import ControllerResult, InSlices
from pykraft.metadata_log.delta import Changes
from pykraft.metadata_log.features import SUPPORTED_RANGES, find_unsupported
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.records import (
    BrokerRegistrationChangeRecord,
    Endpoint,
    NoOpRecord,
    PartitionChangeRecord,
    Record,
    RegisterControllerRecord,
)
from pykraft.metadata_log.replay import RECORDS_AT_ONCE, replay_in_slices
from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch
from pykraft.runtime.clock import Clock
from pykraft.runtime.tasks import FatalHandler, TaskSupervisor

logger = logging.getLogger(__name__)

T = TypeVar("T")
Item = TypeVar("Item")
Registrar = Callable[[], Awaitable[None]]
Decision = Callable[[int], ControllerResult[T] | InSlices[T]]
"""Decides one part of a command at a time (monotonic, ms)."""

REGISTRATION_CHECK_MS = 500
ITEMS_AT_ONCE = 125
"""Items of a broker's request, which has hundreds: some five milliseconds of work."""
CLAIM_MS = 500
"""How long a call waits while this replica leads but has not yet been told everything before its election."""


class QuorumPort(DescribedQuorum, Protocol):
    """The controller's view of the quorum."""

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def log_end_offset(self) -> int: ...

    def propose(self, epoch: int, values: Sequence[bytes]) -> int:
        """Append one batch; returns its last offset. NOT_CONTROLLER unless leading in ``epoch``."""
        ...

    def upgrade_objection(self) -> str | None:
        """Why kraft.version cannot be upgraded now, for people; None if it can."""
        ...

    def upgrade_kraft_version(self, epoch: int) -> None:
        """Append kraft.version 1 with the voters. Errors as :meth:`propose`, INVALID_UPDATE_VERSION."""
        ...


def _in_parts(
    items: tuple[Item, ...], decide: Callable[[tuple[Item, ...]], ControllerResult[T]]
) -> Iterator[Decision[T]]:
    """The decisions on some items of a broker's request at a time; on none, if there are none."""
    for start in range(0, max(1, len(items)), ITEMS_AT_ONCE):
        some = items[start : start + ITEMS_AT_ONCE]
        yield lambda _now_ms, some=some: decide(some)  # type: ignore[misc]


async def _in_turns(work: Generator[None, None, T], turn: asyncio.Lock | None = None) -> T:
    """Run ``work`` in slices, between which others run; those who share a lock take turns."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        async with turn or nullcontext():
            await asyncio.sleep(0)


@dataclass(slots=True)
class _Prepared:
    """Records in bytes, and what they make of the newest image if they are appended at the end of the log."""

    values: list[bytes]
    image: MetadataImage
    changes: Changes


@dataclass(slots=True)
class _Waiter:
    offset: int
    released: asyncio.Future[None]


class ControllerDriver:
    """The controller of one node, active or standby."""

    def __init__(
        self,
        *,
        node_id: int,
        config: ControllerConfig,
        cluster_id: str,
        clock: Clock,
        rng: Rng,
        bootstrap_features: Mapping[str, int],
        quorum: QuorumPort,
        register: Registrar | None = None,
        endpoints: tuple[Endpoint, ...] = (),
        listener_name: str = "CONTROLLER",
        on_fatal: FatalHandler | None = None,
    ) -> None:
        """``register`` tells the active controller of this one: its feature levels and ``endpoints``."""
        self._node_id = node_id
        self._config = config
        self._clock = clock
        self._cluster_id = cluster_id
        self._listener_name = listener_name
        self._core = ControllerCore(config, cluster_id, rng, bootstrap_features)
        self._quorum = quorum
        self._register = register
        self._registration = RegisterControllerRecord(node_id, SUPPORTED_RANGES, endpoints=endpoints)
        self._epoch: int | None = None
        self._proof = LeadershipProof()
        self._waiters: deque[_Waiter] = deque()
        self._told: asyncio.Future[None] | None = None
        """Done when the quorum has told this driver who leads; None while nobody waits for that."""
        self._on_fatal = on_fatal or (lambda error: None)
        self._tasks = TaskSupervisor(self._on_fatal)
        self._sweeping: asyncio.Task[None] | None = None
        self._turn_of_clients = asyncio.Lock()
        """For clients' requests: one part or slice is worked on at a time, one after the other."""
        self._turn_of_brokers = asyncio.Lock()
        """The same for brokers', except first parts: these wait for nothing but a decision."""
        self._deciding = asyncio.Lock()
        """Held from a decision until its records are replayed: between its slices nobody else decides."""

    @property
    def active(self) -> bool:
        """Whether this is the active controller, as far as it knows."""
        return self._epoch is not None

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader of the quorum, as a hint for a caller that asked the wrong node."""
        return self._quorum.leader

    @property
    def image(self) -> MetadataImage:
        """The newest image, committed or not."""
        return self._core.image

    @property
    def committed_image(self) -> MetadataImage:
        return self._core.committed_image

    async def start(self) -> None:
        """Start the timers; they act while this controller is active."""
        self._tasks.start(self._watch_sessions(), "controller-sessions")
        if self._register is not None:
            self._tasks.start(self._stay_registered(self._register), "controller-registration")
        if self._config.auto_leader_rebalance_enable:
            self._tasks.start(self._watch_balance(), "controller-balance")
        if self._config.max_idle_interval_ms > 0:
            self._tasks.start(self._watch_idleness(self._config.max_idle_interval_ms), "controller-idleness")

    async def stop(self) -> None:
        """Stop the timers; waiting callers get NOT_CONTROLLER."""
        await self._tasks.close()
        self._resign()
        self._end_waiting()

    # Calls of the quorum and the loader

    def take_committed(self, batch: CommittedBatch) -> tuple[MetadataImage, Changes] | None:
        """Return the result computed when the batch was appended here; None if it was appended elsewhere."""
        if self._epoch is not None and batch.epoch != self._epoch:
            # Another leader's batch was committed before this driver was told that it no longer leads.
            self._resign()
        return self._core.take_committed(batch)

    def handle_commit(self, batches: Sequence[CommittedBatch], image: MetadataImage) -> None:
        """The batches are committed, and ``image`` includes them; release responses."""
        self._core.follow(image)
        if batches:
            self._proof.handle_commit(batches[-1].last_offset)
            self._release(batches[-1].last_offset)

    def handle_snapshot(self, image: MetadataImage) -> None:
        """A snapshot replaced the log up to ``image``: this replica has started, or was far behind."""
        self._resign()
        self._core.follow(image)

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Become active, or resign."""
        if leader.leader_id == self._node_id and leader.epoch == self._epoch:
            return
        self._resign()
        if leader.leader_id == self._node_id:
            self._claim(leader.epoch)
        self._end_waiting()

    # Requests of brokers

    async def register_broker(self, request: RegisterBrokerRequest) -> RegisterBrokerResponse:
        response = await self._run(lambda now_ms: self._core.handle_register_broker(request, now_ms))
        logger.info("broker %d is registered with epoch %d", request.broker_id, response.broker_epoch)
        return response

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        response = await self._run(lambda now_ms: self._decide_heartbeat(request, now_ms))
        if response.is_fenced:
            return response
        current_ms = self._core.current_ms(request.broker_id, request.broker_epoch)
        now_ms = self._clock.monotonic_ms()
        lease_ms = self._proof.lease_ms(self._config.session_timeout_ms, now_ms, current_ms)
        return replace(response, lease_ms=lease_ms)

    def _decide_heartbeat(
        self, request: BrokerHeartbeatRequest, now_ms: int
    ) -> ControllerResult[BrokerHeartbeatResponse]:
        result = self._core.handle_broker_heartbeat(request, now_ms)
        if result.records or result.response.is_fenced:
            return result
        if self._proof.needs_record(self._config.lease_proof_max_age_ms, now_ms):
            return replace(result, records=(NoOpRecord(),))
        return result

    async def register_controller(self, request: RegisterControllerRequest) -> None:
        await self._run(lambda _now_ms: self._core.handle_register_controller(request))
        logger.info("controller %d is registered", request.controller_id)
        own_ms, its_ms = self._config.session_timeout_ms, request.session_timeout_ms
        if its_ms not in (0, own_ms):
            logger.warning(
                "controller %d is configured with broker.session.timeout.ms=%d, the active controller %d with"
                " %d: sessions change with the active controller",
                request.controller_id,
                its_ms,
                self._node_id,
                own_ms,
            )

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        results: list[PartitionIsrResult] = []
        await self._run_parts(
            _in_parts(
                request.partitions,
                lambda some: self._core.handle_alter_partition(replace(request, partitions=some)),
            ),
            lambda answer: results.extend(answer.partitions),
        )
        return AlterPartitionResponse(tuple(results))

    async def report_lost_replicas(self, request: ReportLostReplicasRequest) -> ReportLostReplicasResponse:
        results: list[LostReplicaResult] = []
        await self._run_parts(
            _in_parts(
                request.partitions,
                lambda some: self._core.handle_report_lost_replicas(replace(request, partitions=some)),
            ),
            lambda answer: results.extend(answer.partitions),
        )
        return ReportLostReplicasResponse(tuple(results))

    async def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> AssignReplicasToDirsResponse:
        errors: list[ErrorCode] = []
        await self._run_parts(
            _in_parts(
                request.assignments,
                lambda some: self._core.handle_assign_replicas_to_dirs(replace(request, assignments=some)),
            ),
            lambda answer: errors.extend(answer.errors),
        )
        return AssignReplicasToDirsResponse(tuple(errors))

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        return await self._run(lambda _now_ms: self._core.handle_allocate_producer_ids(request))

    async def forward(
        self, context: RequestContext, api_key: int, api_version: int, body: bytes, timeout_ms: int
    ) -> bytes:
        """Handle a client's request; request and response are in Kafka's encoding."""
        await self._until_told()
        self._check_active()
        request = await _in_turns(find_forwarded(api_key).decode(body, api_version), self._turn_of_clients)
        answer, encoded = await self.answer(context, request, timeout_ms), Body()
        await _in_turns(answer.encode_in_slices(api_version, encoded), self._turn_of_clients)
        for whole in (request, answer):
            await _in_turns(whole.release(), self._turn_of_clients)
        return encoded.to_bytes()

    async def answer(self, context: RequestContext, request: Message, timeout_ms: int) -> Message:
        """As :meth:`forward`, decoded."""
        timeout_ms = min(timeout_ms, wait_ms(request))
        if isinstance(find_forwarded(request.API_KEY), AskedOfQuorum):
            return await self._ask_quorum(request, timeout_ms)
        answer = JoinedAnswer(request)
        await self._run_parts(self._iter_decisions(context, request), answer.add, timeout_ms, of_client=True)
        response: Message = answer.whole
        return response

    async def _ask_quorum(self, request: Message, timeout_ms: int) -> Message:
        row = find_forwarded(request.API_KEY)
        assert isinstance(row, AskedOfQuorum), type(request).__name__
        wall_ms, limit_ms = self._clock.wall_ms(), self._limit(timeout_ms)
        at = QuorumSituation(self._quorum, self._cluster_id, self._listener_name, wall_ms, limit_ms)
        answer: Message = await row.ask(at, request)
        return answer

    def _iter_decisions(self, context: RequestContext, request: Message) -> Iterator[Decision[Any] | None]:
        rehearsal = Rehearsal(self.image) if getattr(request, "validate_only", False) else None
        for part in cut_request(request, lambda: self.image, self._config):
            yield None if part is None else partial(self._decide, context, part, rehearsal)

    def _decide(
        self, context: RequestContext, request: Message, rehearsal: Rehearsal | None, now_ms: int
    ) -> InSlices[Any]:
        quorum = self._quorum
        return self._core.handle_forwarded(
            context,
            request,
            quorum.voters.ids,
            quorum.voters.kraft_version,
            quorum.upgrade_objection,
            rehearsal,
        )

    # Running a command

    async def _run(self, decide: Decision[T], timeout_ms: int | None = None) -> T:
        """Decide, append, replay; return the response once everything it is based on is committed.

        Raises :class:`KafkaError`: the command's error, NOT_CONTROLLER if this controller is or becomes
        inactive, REQUEST_TIMED_OUT if the commit takes too long (it may still happen later).
        """
        responses: list[T] = []
        await self._run_parts([decide], responses.append, timeout_ms)
        (response,) = responses
        return response

    async def _run_parts(
        self,
        decisions: Iterable[Decision[T] | None],
        take: Callable[[T], None],
        timeout_ms: int | None = None,
        *,
        of_client: bool = False,
    ) -> None:
        """As :meth:`_run`, for a command in parts, each in a turn of its own; ``take`` gets the responses.

        Other commands may run between two parts. All must run in one epoch: after it, the records of an
        earlier part may be lost. None in place of a decision ends a slice of the work that finds the parts.
        Clients wait for each other before each part, so that a broker never waits for more than one of them.
        """
        turn = self._turn_of_clients if of_client else self._turn_of_brokers
        await self._until_told()
        epoch = self._epoch
        self._check_active(epoch)
        try:
            for number, decide in enumerate(decisions):
                async with turn if number or of_client else nullcontext():
                    if number:
                        await asyncio.sleep(0)
                    if decide is not None:
                        take(await self._run_part(decide, epoch))
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                # A refusal, too, may be based on records that are not committed yet.
                await self._until_committed(self._limit(timeout_ms))
            raise
        except Exception as error:
            self._on_fatal(error)
            raise
        await self._until_committed(self._limit(timeout_ms))

    async def _run_part(self, decide: Decision[T], epoch: int | None) -> T:
        async with self._deciding:
            self._check_active(epoch)
            decided, prepared = decide(self._clock.monotonic_ms()), None
            result = await _in_turns(decided) if isinstance(decided, Generator) else decided
            self._check_active(epoch)
            if len(result.records) > RECORDS_AT_ONCE:
                prepared = await _in_turns(self._prepare(result.records))
                self._check_active(epoch)
            response = result.response_at(self._append(result.records, prepared))
            if result.upgrades_kraft_version:
                self._upgrade_kraft_version()
        return response

    def _prepare(self, records: Sequence[Record]) -> Generator[None, None, _Prepared]:
        """Encode very many records, and replay them where they are about to be appended, in slices."""
        assert self._epoch is not None
        image, epoch, base_offset, values = self.image, self._epoch, self._quorum.log_end_offset, []
        for count, record in enumerate(records, 1):
            values.append(encode_record(record))
            if count % RECORDS_AT_ONCE == 0:
                yield
        return _Prepared(values, *(yield from replay_in_slices(image, records, base_offset, epoch)))

    def _append(self, records: Sequence[Record], prepared: _Prepared | None = None) -> int:
        """Append the records and replay them; returns the offset of the first, -1 if there are none."""
        if not records:
            return -1
        assert self._epoch is not None
        now_ms, replayed = self._clock.monotonic_ms(), None
        values = [encode_record(record) for record in records] if prepared is None else prepared.values
        last_offset = self._quorum.propose(self._epoch, values)
        if prepared is not None and prepared.image.offset == last_offset:
            # Else the quorum has appended something of its own meanwhile, which moves the offsets.
            replayed = prepared.image, prepared.changes
        if logger.isEnabledFor(logging.INFO):
            for line in announce(self._core.image, records):
                logger.log(logging.WARNING if line.is_warning else logging.INFO, "%s", line.text)
        base_offset = last_offset - len(records) + 1
        self._core.replay(records, base_offset, self._epoch, now_ms, replayed)
        self._proof.handle_append(last_offset, now_ms)
        self._maybe_sweep()
        return base_offset

    def _upgrade_kraft_version(self) -> None:
        """The caller waits for the commit of the record behind the quorum's own, which is then committed."""
        assert self._epoch is not None
        self._quorum.upgrade_kraft_version(self._epoch)
        logger.info("kraft.version is at 1: the voters are part of the log, and may change")
        self._append((NoOpRecord(),))

    async def _until_committed(self, timeout_ms: int) -> None:
        if not self._core.has_pending:
            return
        waiter = _Waiter(self._core.last_offset, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter.released
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"not committed within {timeout_ms} ms; it may still be later",
            ) from None

    def _limit(self, timeout_ms: int | None) -> int:
        longest = self._config.request_timeout_ms
        return longest if timeout_ms is None else max(1, min(timeout_ms, longest))

    def _check_active(self, epoch: int | None = None) -> None:
        # The quorum may know of a new epoch that this driver has not been told of yet.
        leader = self._quorum.leader
        if (
            self._epoch is None
            or epoch not in (None, self._epoch)
            or leader.leader_id != self._node_id
            or leader.epoch != self._epoch
        ):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"node {self._node_id} is not the active controller")

    async def _until_told(self) -> None:
        """Wait while this replica leads and this driver does not know it yet: a refusal now would be followed
        by a pause of the caller, which is longer.
        """
        leader = self._quorum.leader
        if leader.leader_id == self._node_id and leader.epoch != self._epoch:
            self._told = self._told or asyncio.get_running_loop().create_future()
            await asyncio.wait([self._told], timeout=CLAIM_MS / 1000)

    def _end_waiting(self) -> None:
        told, self._told = self._told, None
        if told is not None:
            told.set_result(None)

    def _release(self, committed_offset: int) -> None:
        while self._waiters and self._waiters[0].offset <= committed_offset:
            released = self._waiters.popleft().released
            if not released.done():
                released.set_result(None)

    # Becoming active, and resigning

    def _claim(self, epoch: int) -> None:
        unsupported = find_unsupported(self._core.image.features)
        if unsupported is not None:
            self._on_fatal(KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the cluster runs {unsupported}"))
            return
        self._epoch = epoch
        logger.info("node %d is the active controller of epoch %d", self._node_id, epoch)
        longest_ms, own_ms = self._core.image.longest_session_ms, self._config.session_timeout_ms
        if longest_ms > own_ms:
            logger.warning(
                "broker.session.timeout.ms was %d for an earlier active controller and is %d for this one:"
                " brokers that are active now are fenced only after the longer time, once",
                longest_ms,
                own_ms,
            )
        self._append_own([*self._core.claim(self._clock.monotonic_ms()).records, *self._own_registration()])
        self._maybe_sweep()

    def _own_registration(self) -> list[Record]:
        known = self._core.image.controllers.get(self._node_id)
        return [] if known == self._registration else [self._registration]

    def _append_own(self, records: Sequence[Record]) -> None:
        """Append records for which no caller waits. If leadership is lost already, resign."""
        try:
            self._append(records)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            self._resign()

    def _resign(self) -> None:
        if self._epoch is None:
            return
        logger.info("node %d is no longer the active controller (epoch %d)", self._node_id, self._epoch)
        self._epoch = None
        self._proof.clear()
        self._core.resign()
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.released.done():
                waiter.released.set_exception(
                    KafkaError(ErrorCode.NOT_CONTROLLER, "leadership was lost before the commit")
                )

    async def _stay_registered(self, register: Registrar) -> None:
        """Register until the log holds this registration; an active controller appends its own.

        At least once in any case: the active controller also compares settings that are not in the log.
        """
        sent = False
        while not sent or self._core.committed_image.controllers.get(self._node_id) != self._registration:
            if self._epoch is not None:
                sent = True
            elif self._quorum.leader.leader_id is not None:
                try:
                    await register()
                    sent = True
                except KafkaError as error:
                    if error.code is ErrorCode.UNSUPPORTED_VERSION:
                        self._on_fatal(error)  # this software cannot interpret the cluster's records
                        return
                    logger.warning("controller %d is not registered yet: %s", self._node_id, error)
            await asyncio.sleep(REGISTRATION_CHECK_MS / 1000)

    # Sessions

    async def _watch_sessions(self) -> None:
        interval_ms = self._config.fence_check_interval_ms
        while True:
            if await self._slept_too_long(interval_ms):
                # Heartbeats are unread in the sockets: they are read before any broker is fenced.
                await self._slept_too_long(self._config.late_reading_ms)
            async with self._deciding:
                self._fence_expired(self._clock.monotonic_ms())

    async def _slept_too_long(self, for_ms: int) -> bool:
        """Sleep; returns whether this process was stalled meanwhile. That extends sessions, within limits.

        If the whole machine was suspended, their next heartbeats are still as far away as before.
        """
        began_ms = self._clock.monotonic_ms()
        await asyncio.sleep(for_ms / 1000)
        now_ms = self._clock.monotonic_ms()
        late_ms = now_ms - began_ms - for_ms
        if late_ms <= self._config.fence_check_interval_ms:
            return False
        self._core.extend_for_stall(late_ms, now_ms)
        return True

    async def _watch_idleness(self, interval_ms: int) -> None:
        offset = -1
        while True:
            await asyncio.sleep(interval_ms / 1000)
            async with self._deciding:
                if self._epoch is not None and self._core.last_offset == offset:
                    self._append_own([NoOpRecord()])
            offset = self._core.last_offset

    def _fence_expired(self, now_ms: int) -> None:
        if self._epoch is None:
            return
        result = self._core.handle_fence_check(now_ms)
        for record in result.records:
            if isinstance(record, BrokerRegistrationChangeRecord):
                stale = record.broker_id in result.response
                why = "does not follow the metadata log" if stale else "has sent no heartbeat"
                logger.warning("broker %d %s and is fenced", record.broker_id, why)
        self._append_own(result.records)

    # Preferred leaders

    async def _watch_balance(self) -> None:
        while True:
            await asyncio.sleep(self._config.leader_imbalance_check_interval_ms / 1000)
            if self._epoch is not None:
                self._core.begin_balance()
            while await self._balance_slice():  # noqa: ASYNC110, it waits for nothing: others have their turn
                await asyncio.sleep(0)

    async def _balance_slice(self) -> bool:
        """False: nothing is left to balance."""
        async with self._deciding:
            if self._epoch is None or not self._core.is_balancing:
                return False
            self._append_own(self._core.next_balance_slice().records)
            return True

    # Sweeps

    def _maybe_sweep(self) -> None:
        if self._core.is_sweeping and (self._sweeping is None or self._sweeping.done()):
            self._sweeping = self._tasks.start(self._sweep(), "controller-sweep")

    async def _sweep(self) -> None:
        """Run one slice in each turn of the loop, so that many partitions do not delay other work."""
        moved = 0
        while (changes := await self._sweep_slice()) is not None:
            moved += sum(isinstance(it, PartitionChangeRecord) and it.leader is not None for it in changes)
            await asyncio.sleep(0)
        if moved:
            logger.info("%d partitions changed their leader after changes of brokers", moved)

    async def _sweep_slice(self) -> Sequence[Record] | None:
        """The changes of one slice, which are appended; None if nothing is left to sweep."""
        async with self._deciding:
            if self._epoch is None or not self._core.is_sweeping:
                return None
            changes = self._core.next_sweep_slice().records
            self._append_own(changes)
            return changes
