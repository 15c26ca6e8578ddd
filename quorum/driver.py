"""One replica of the metadata quorum on an asyncio loop: events into the core, its effects out, in order.

Here are the promises that :mod:`.effects` asks for. The vote file is written, with fsync, on the loop (it is
rare); the log is flushed in a worker thread, one flush at a time, and everything appended while one runs
shares the next (group commit). A truncation waits for the flush in flight. Any disk fault, or a bug in the
core or in a listener, halts the replica and is reported through ``on_fatal``: a replica that cannot trust its
disk must not answer. This file decides nothing about the protocol.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.log_store.log import Log
from pykraft.quorum import effects, events, rpc
from pykraft.quorum.config import QuorumConfig
from pykraft.quorum.core import RaftCore
from pykraft.quorum.delivery import Delivery
from pykraft.quorum.describe import describe_quorum
from pykraft.quorum.effects import Effect, FlushLog, TruncateTo
from pykraft.quorum.events import Event
from pykraft.quorum.listener import (
    CommittedBatch,
    LeaderAndEpoch,
    QuorumDescription,
    QuorumListener,
    ReplicaProgress,
)
from pykraft.quorum.messages import Response
from pykraft.quorum.state import RandomSource
from pykraft.quorum.state_store import QuorumStateError
from pykraft.quorum.storage import QuorumStorage, StateStore, encode_proposal
from pykraft.quorum.voters import ReplicaKey, VoterSet
from pykraft.runtime.clock import Clock
from pykraft.runtime.rpc import RpcAddress, RpcFailure, RpcServer, RpcTransport

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = [
    "CommittedBatch",
    "LeaderAndEpoch",
    "QuorumConfig",
    "QuorumDescription",
    "QuorumListener",
    "QuorumNode",
    "ReplicaProgress",
]

logger = logging.getLogger(__name__)

MAX_BATCH_BYTES = 8 << 20


class QuorumNode:
    """A voter, or an observer when ``local`` is not among ``voters``.

    ``log`` is open and recovered; it, the transport and the server belong to the caller. ``on_fatal`` is
    called once, on the loop, after the replica has halted. ``flush_executor``: threads for the flushes of the
    log, the loop's own if None; one thread is enough, but a queue behind slow jobs delays every commit.
    """

    def __init__(
        self,
        *,
        config: QuorumConfig,
        cluster_id: str,
        local: ReplicaKey,
        voters: VoterSet,
        log: Log,
        state_store: StateStore,
        transport: RpcTransport,
        clock: Clock,
        rng: RandomSource,
        listeners: Sequence[QuorumListener] = (),
        on_fatal: Callable[[BaseException], None] | None = None,
        flush_executor: Executor | None = None,
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._local = local
        self._voters = voters
        self._log = log
        self._storage = QuorumStorage(log, state_store, clock)
        self._transport = transport
        self._clock = clock
        self._rng = rng
        self._on_fatal = on_fatal
        self._flush_executor = flush_executor
        self._delivery = Delivery(log, listeners)
        self._core: RaftCore | None = None
        self._events: deque[Event] = deque()
        self._effects: deque[Effect] = deque()
        self._waiting: dict[int, tuple[str, asyncio.Future[bytes]]] = {}
        self._next_token = 0
        self._pumping = False
        self._running = False
        self._delivering = False
        self._flush_wanted: FlushLog | None = None
        self._flushing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._leader = LeaderAndEpoch(None, 0)
        self._handed_over = asyncio.Event()
        self._complained: set[tuple[ReplicaKey, ErrorCode]] = set()

    # --- what the rest of the process uses ------------------------------------------------------------

    @property
    def leader(self) -> LeaderAndEpoch:
        """As known now; the local replica as soon as it is elected, before its listeners are told."""
        return self._leader

    @property
    def is_voter(self) -> bool:
        return self._voters.is_voter(self._local)

    @property
    def high_watermark(self) -> int:
        """Exclusive; 0 until known after a start."""
        return 0 if self._core is None else self._core.state.high_watermark

    @property
    def delivered_offset(self) -> int:
        """Every listener has been handed everything below this offset."""
        return self._delivery.delivered_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset if self._core is None else self._core.state.log.end_offset

    def leader_address(self) -> RpcAddress | None:
        """Where the known leader's CONTROLLER listener is."""
        leader_id = self._leader.leader_id
        voter = None if leader_id is None else self._voters.get(leader_id)
        return None if voter is None else voter.address

    def propose(self, epoch: int, values: Sequence[bytes]) -> int:
        """Append ``values`` as one batch; returns the offset of its last record. It commits later, or never.

        :class:`KafkaError` NOT_CONTROLLER unless the local replica leads ``epoch``, RECORD_LIST_TOO_LARGE for
        more than 8 MiB. When it raises, nothing has been appended, or the replica has halted.
        """
        core = self._core
        if core is None or not self._running or self._pumping or self._effects or not core.may_propose(epoch):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"not the leader of epoch {epoch}")
        assert values, "an empty batch cannot be appended"
        base_offset = core.state.log.end_offset
        batch = encode_proposal(values, base_offset, epoch, self._clock.wall_ms())
        if len(batch) > MAX_BATCH_BYTES:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {len(batch)} bytes")
        self._step(events.Proposed(epoch, len(values), batch))
        if not self._running:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the disk failed")
        return base_offset + len(values) - 1

    def describe(self, now_ms: int) -> QuorumDescription:
        """The quorum as seen from here. ``now_ms`` is the time of day, and so are the times in the answer."""
        if self._core is None:
            return QuorumDescription(None, self._leader.epoch, 0, (), ())
        return describe_quorum(self._core.state, now_ms - self._clock.monotonic_ms(), now_ms)

    def register(self, server: RpcServer) -> None:
        """Serve Vote, BeginQuorumEpoch, EndQuorumEpoch and Fetch on ``server``."""
        for method in rpc.METHODS.values():
            server.register(method, self._handler(method))

    async def start(self) -> None:
        """Read the disk and join the quorum. :class:`QuorumStateError` if the disk cannot be believed."""
        election = self._storage.read_election()
        # What a killed process left in the page cache is readable but not durable yet; the core takes it so.
        await asyncio.get_running_loop().run_in_executor(self._flush_executor, self._log.flush)
        try:
            self._core = RaftCore(
                config=self._config,
                cluster_id=self._cluster_id,
                local=self._local,
                voters=self._voters,
                rng=self._rng,
                election=election,
                log=self._storage.outline(),
                now_ms=self._clock.monotonic_ms(),
            )
        except ValueError as error:
            raise QuorumStateError(str(error)) from error
        self._running = True
        self._step(events.Started())

    async def stop(self) -> None:
        """Hand over if leading (for at most an election timeout), then take no further part."""
        if self._running and self._core is not None:
            self._step(events.ShutdownRequested())
            try:
                async with asyncio.timeout(self._config.election_timeout_ms / 1000):
                    await self._handed_over.wait()
            except TimeoutError:
                logger.info("Stopped leading without telling every voter")
        self._halt()
        if self._flushing is not None:
            await asyncio.wait([self._flushing])

    # --- events -------------------------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        self._events.append(event)
        self._pump()

    def _pump(self) -> None:
        """Run until there is neither effect nor event left, or a truncation has to wait for a flush."""
        if self._pumping or not self._running:
            return
        core = self._core
        assert core is not None
        self._pumping = True
        try:
            while self._running and not self._is_blocked():
                if self._effects:
                    self._run(self._effects.popleft())
                elif self._events:
                    self._effects.extend(core.step(self._events.popleft(), self._clock.monotonic_ms()))
                else:
                    break
            self._maybe_flush()
        except Exception as error:
            self._fail(error)
        finally:
            self._pumping = False
        self._maybe_deliver()
        self._arm_timer(core.next_deadline_ms)
        if core.state.shutting_down and core.has_handed_over:
            self._handed_over.set()

    def _is_blocked(self) -> bool:
        return bool(self._effects) and isinstance(self._effects[0], TruncateTo) and self._flushing is not None

    def _handler(self, method: str) -> Callable[[bytes], asyncio.Future[bytes]]:
        def handle(payload: bytes) -> asyncio.Future[bytes]:
            answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            if not self._running:
                answer.set_result(self._refusal(method, ErrorCode.BROKER_NOT_AVAILABLE))
                return answer
            try:
                request = rpc.decode_request(method, payload)
            except ValueError as error:
                logger.warning("Refused a malformed request %s: %s", method, error)
                answer.set_result(self._refusal(method, ErrorCode.INVALID_REQUEST))
                return answer
            token = self._next_token
            self._next_token += 1
            self._waiting[token] = (method, answer)
            self._step(events.RequestReceived(token, request))
            return answer

        return handle

    def _handle_reply(self, correlation_id: int, method: str, reply: bytes | RpcFailure) -> None:
        if not self._running:
            return
        if isinstance(reply, RpcFailure):
            self._step(events.RequestFailed(correlation_id))
            return
        try:
            response = rpc.decode_response(method, reply)
        except ValueError as error:
            logger.warning("Dropped a malformed answer to %s: %s", method, error)
            self._step(events.RequestFailed(correlation_id))
            return
        if response.error in (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_VOTER_KEY):
            self._complain(response)
        self._step(events.ResponseReceived(correlation_id, response))

    def _complain(self, response: Response) -> None:
        """Say once, not at every retry, that a peer is not the one our voter set means."""
        seen = (response.replica, response.error)
        if seen not in self._complained:
            self._complained.add(seen)
            who, why = f"{response.replica} of cluster {response.cluster_id}", response.error.name
            logger.error("Replica %s refuses us: %s", who, why)

    def _handle_timer(self) -> None:
        self._timer = None
        self._step(events.TimerFired())

    def _arm_timer(self, deadline_ms: int | None) -> None:
        """A timer that is already set to fire earlier is left alone: an early TimerFired does no harm."""
        if not self._running or deadline_ms is None:
            return
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        self._timer_ms = deadline_ms
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._handle_timer)

    # --- effects ------------------------------------------------------------------------------------------

    def _run(self, effect: Effect) -> None:
        match effect:
            case effects.Send(to, correlation_id, request, timeout_ms):
                voter = self._voters.get(to)
                assert voter is not None
                method = rpc.METHODS[type(request)]

                def on_reply(reply: bytes | RpcFailure) -> None:
                    self._handle_reply(correlation_id, method, reply)

                self._transport.send(voter.address, method, rpc.encode_request(request), timeout_ms, on_reply)
            case effects.Reply(token, response):
                self._reply(token, response)
            case effects.ReplyWithRecords():
                self._reply(effect.token, self._storage.with_records(effect))
            case FlushLog():
                self._flush_wanted = effect
            case effects.AdvanceHighWatermark(high_watermark):
                self._delivery.high_watermark = high_watermark
            case effects.LeaderChanged(leader, epoch, after_offset):
                known = LeaderAndEpoch(None if leader is None else leader.id, epoch)
                if known != self._leader:
                    logger.info("Epoch %d: leader is %s", epoch, "unknown" if leader is None else leader)
                self._leader = known
                self._delivery.leader_changed(known, after_offset)
            case _:
                self._storage.apply(effect)

    def _reply(self, token: int, response: Response) -> None:
        _, answer = self._waiting.pop(token)
        if not answer.done():
            answer.set_result(rpc.encode_response(response))

    def _refusal(self, method: str, error: ErrorCode) -> bytes:
        return rpc.encode_response(rpc.refusal(method, self._cluster_id, self._local, error))

    # --- flushing and delivering --------------------------------------------------------------------------

    def _maybe_flush(self) -> None:
        if self._flush_wanted is None or self._flushing is not None or not self._running:
            return
        wanted, self._flush_wanted = self._flush_wanted, None
        job = self._log.prepare_flush()
        self._flushing = asyncio.get_running_loop().run_in_executor(self._flush_executor, job.run)

        def on_flushed(flush: asyncio.Future[None]) -> None:
            self._flushing = None
            if flush.cancelled() or not self._running:
                return
            error = flush.exception()
            if error is not None:
                self._fail(error)
                return
            self._log.complete_flush(job)
            self._step(events.LogFlushed(job.end_offset, wanted.generation))

        self._flushing.add_done_callback(on_flushed)

    def _maybe_deliver(self) -> None:
        if self._running and not self._delivering and self._delivery.has_work:
            self._delivering = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        """One slice a loop turn, so that a long log does not starve the node's other duties."""
        self._delivering = False
        if not self._running:
            return
        try:
            self._delivery.deliver_slice()
        except Exception as error:
            self._fail(error)
            return
        self._maybe_deliver()

    # --- the end ------------------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        if not self._running:
            return
        logger.critical("The quorum replica halts: %s", error, exc_info=error)
        self._halt()
        if self._on_fatal is not None:
            self._on_fatal(error)

    def _halt(self) -> None:
        self._running = False
        self._handed_over.set()
        self._events.clear()
        self._effects.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for method, answer in self._waiting.values():
            if not answer.done():
                answer.set_result(self._refusal(method, ErrorCode.BROKER_NOT_AVAILABLE))
        self._waiting.clear()
