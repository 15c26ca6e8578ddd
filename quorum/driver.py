"""One replica of the metadata quorum on an asyncio loop: events into the core, its effects out, in order.

This file keeps the promises that :mod:`.core.effects` requires. The vote file is written, with fsync, on the
loop (it is rare); the log is flushed in a worker thread, one flush at a time, and everything appended while
one runs shares the next (group commit). A truncation waits for the flush in flight. Any disk fault, or a bug
in the core or in a listener, halts the replica and is reported through ``on_fatal``: a replica that cannot
trust its disk must not answer. This file decides nothing about the protocol. It is long
because each effect of the core has its counterpart here, and their order is the promise.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.log_store.log.log import Log
from pykraft.quorum.calls import Calls
from pykraft.quorum.core import effects, events
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.effects import Effect, FlushLog, TruncateTo
from pykraft.quorum.core.events import Event
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.messages import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
)
from pykraft.quorum.core.raft_core import RaftCore
from pykraft.quorum.core.state import CoreState, RandomSource
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.quorum.delivery import Delivery
from pykraft.quorum.describe import describe_quorum
from pykraft.quorum.listener import (
    CommittedBatch,
    LeaderAndEpoch,
    QuorumDescription,
    QuorumListener,
    ReplicaProgress,
)
from pykraft.quorum.local_snapshots import LocalSnapshots, SnapshotWriter
from pykraft.quorum.snapshots import CorruptSnapshotError, SnapshotInfo
from pykraft.quorum.state_store import QuorumStateError
from pykraft.quorum.storage import QuorumStorage, StateStore, encode_proposal
from pykraft.runtime.address import Address
from pykraft.runtime.clock import Clock
from pykraft.runtime.rpc import RpcServer, RpcTransport

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
    "SnapshotId",
    "SnapshotWriter",
]

logger = logging.getLogger(__name__)

MAX_BATCH_BYTES = 8 << 20


def _names_others(state: CoreState) -> bool:
    """Whether the election state names another voter. If it leads or is elected, it will contact us."""
    leader_id, voted, local_id = state.election.leader_id, state.election.voted, state.local.id
    return leader_id not in (None, local_id) or (voted is not None and voted.id != local_id)


class QuorumNode:
    """A voter, or an observer when ``local`` is not among the voters.

    ``voters``: those that the configuration or formatting named, or none; voters in the log take precedence.
    ``local_address``: the address of this replica, None if it serves no calls. ``log`` is open and recovered,
    in a directory that was formatted; it, the transport and the server belong to the caller. ``on_fatal`` is
    called once, on the loop, after the replica has halted. ``flush_executor``: threads for the flushes of the
    log and of snapshots, the loop's own if None; two are enough, but a queue behind slow jobs delays every
    commit.
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
        on_fatal: Callable[[BaseException], None] | None = None,
        flush_executor: Executor | None = None,
        local_address: Address | None = None,
    ) -> None:
        self._config = config
        self._cluster_id = cluster_id
        self._local = local
        self._local_address = local_address
        self._initial_voters = voters
        self._log = log
        may_vote = local_address is not None or voters.is_voter(local)
        self._storage = QuorumStorage(log, state_store, clock, keeps_mark=may_vote)
        self._calls = Calls(cluster_id, local, transport, self._step)
        self._clock = clock
        self._rng = rng
        self._on_fatal = on_fatal
        self._flush_executor = flush_executor
        self._delivery = Delivery(log)
        self._listeners: tuple[QuorumListener, ...] = ()
        self._snapshots = LocalSnapshots(
            log, self._storage.snapshots, config, clock, self._in_thread, self._step, self._fail
        )
        self._core: RaftCore | None = None
        self._events: deque[Event] = deque()
        self._effects: deque[Effect] = deque()
        self._pumping = False
        self._running = False
        self._delivering = False
        self._flush_wanted: FlushLog | None = None
        self._flushing: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._leader = LeaderAndEpoch(None, 0)
        self._leader_address: Address | None = None
        self._handed_over = asyncio.Event()

    # --- what the rest of the process uses ------------------------------------------------------------

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader as known now; the local replica once it is elected, before listeners are notified."""
        return self._leader

    @property
    def voters(self) -> VoterSet:
        """The newest voter set in the local log, committed or not."""
        return self._initial_voters if self._core is None else self._core.state.voters

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self._local)

    @property
    def ignores_fixed_voters(self) -> bool:
        """Whether the configuration still names fixed voters, and those in the log take precedence."""
        return not self._initial_voters.is_dynamic and self.voters.is_dynamic

    @property
    def high_watermark(self) -> int:
        """Exclusive; after a start, until more is known, the end of the newest snapshot, 0 without one."""
        return 0 if self._core is None else self._core.state.high_watermark

    @property
    def delivered_offset(self) -> int:
        """Every listener has been handed everything below this offset."""
        return self._delivery.delivered_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset if self._core is None else self._core.state.log.end_offset

    def leader_address(self) -> Address | None:
        """The address of the known leader's CONTROLLER listener."""
        return self._leader_address

    def propose(self, epoch: int, values: Sequence[bytes]) -> int:
        """Append ``values`` as one batch; returns the offset of its last record. It commits later, or never.

        :class:`KafkaError` NOT_CONTROLLER unless the local replica leads ``epoch``, RECORD_LIST_TOO_LARGE for
        more than 8 MiB. When it raises, nothing has been appended, or the replica has halted.
        """
        core = self._leading_core(epoch)
        assert values, "an empty batch cannot be appended"
        base_offset = core.state.log.end_offset
        batch = encode_proposal(values, base_offset, epoch, self._clock.wall_ms())
        if len(batch) > MAX_BATCH_BYTES:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {len(batch)} bytes")
        self._step(events.Proposed(epoch, len(values), batch))
        if not self._running:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the disk failed")
        return base_offset + len(values) - 1

    def upgrade_objection(self) -> str | None:
        """Why the voters cannot become part of the log now (kraft.version 0 → 1), for people; None if they
        can. Only the leader can tell.
        """
        if self._core is None:
            return "the replica does not run"
        return self._core.upgrade_objection(self._clock.monotonic_ms())

    def upgrade_kraft_version(self, epoch: int) -> None:
        """Append kraft.version 1 and the voters, which are fixed until now. It commits later, or never.

        :class:`KafkaError` NOT_CONTROLLER as :meth:`propose`; INVALID_UPDATE_VERSION for an objection.
        """
        self._leading_core(epoch)
        objection = self.upgrade_objection()
        if objection is not None:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, objection)
        self._step(events.UpgradeProposed(epoch))
        if not self._running:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the disk failed")

    def _leading_core(self, epoch: int) -> RaftCore:
        core = self._core
        if core is None or not self._running or self._pumping or self._effects or not core.may_propose(epoch):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"not the leader of epoch {epoch}")
        return core

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest snapshot that is durable here, made or fetched."""
        return self._storage.snapshots.latest()

    def start_snapshot(self, end_offset: int, append_time_ms: int) -> SnapshotWriter | None:
        """Begin a snapshot of the committed state below ``end_offset``; its values come from the caller.

        ``append_time_ms`` is that of the last batch in it. None if it would not be newer than the newest, if
        another is being written, or if ``end_offset`` is not the end of a committed batch.
        """
        core, latest = self._core, self.latest_snapshot
        first_offset = 0 if latest is None else latest.end_offset
        if core is None or not self._running or not first_offset < end_offset <= core.state.high_watermark:
            return None
        snapshot_id = SnapshotId(end_offset, core.state.log.epoch_of(end_offset - 1))
        # Voters named by configuration or formatting alone are not part of the replicated state.
        return self._snapshots.begin(snapshot_id, append_time_ms, core.state.history.shared_at(end_offset))

    async def add_voter(self, voter: Voter, timeout_ms: int, *, ack_when_committed: bool = True) -> None:
        """Make an observer that has caught up a voter; returns when that is committed, or appended.

        :class:`KafkaError` NOT_CONTROLLER if the local replica does not lead or stops leading before the
        commit, UNSUPPORTED_VERSION if the voters are fixed, DUPLICATE_VOTER, REQUEST_TIMED_OUT if an earlier
        change is not committed, the new voter not reached or behind, or the commit late (it may still
        follow).
        """
        await self._calls.change_voters(
            AddRaftVoterRequest(self._cluster_id, voter, timeout_ms, ack_when_committed)
        )

    async def remove_voter(self, key: ReplicaKey, timeout_ms: int) -> None:
        """Make a voter an observer. Errors as :meth:`add_voter`; VOTER_NOT_FOUND; INVALID_REQUEST (last)."""
        await self._calls.change_voters(RemoveRaftVoterRequest(self._cluster_id, key, timeout_ms))

    def describe(self, now_ms: int) -> QuorumDescription:
        """The quorum as seen from here. ``now_ms`` is the time of day, and so are the times in the answer."""
        if self._core is None:
            return QuorumDescription(None, self._leader.epoch, 0, (), ())
        return describe_quorum(self._core.state, now_ms - self._clock.monotonic_ms(), now_ms)

    def register(self, server: RpcServer) -> None:
        """Serve the calls of other replicas on ``server``."""
        self._calls.register(server)

    async def start(self, listeners: Sequence[QuorumListener] = ()) -> None:
        """Read the disk and join the quorum; ``listeners`` are called from then on, in this order.

        :class:`QuorumStateError` if the files contradict each other.
        """
        self._listeners = tuple(listeners)
        election = self._storage.read_election()
        # Records that a killed process left in the page cache are readable but not durable yet, and the core
        # treats them so.
        loop = asyncio.get_running_loop()
        for damage in await loop.run_in_executor(self._flush_executor, self._storage.recover):
            logger.warning("An older snapshot is removed: %s", damage)
        self._storage.compare_with_mark()
        latest = self.latest_snapshot
        if latest is not None:
            self._delivery.replace_by(self._storage.snapshots.reader(latest))
        try:
            self._core = RaftCore(
                config=self._config,
                cluster_id=self._cluster_id,
                local=self._local,
                history=self._storage.read_voters(self._initial_voters),
                rng=self._rng,
                election=election,
                log=self._storage.outline(),
                latest_snapshot=latest,
                now_ms=self._clock.monotonic_ms(),
                local_address=self._local_address,
                recovery=self._storage.recovery,
                losses=self._storage.losses,
            )
        except ValueError as error:
            raise QuorumStateError(str(error)) from error
        self._log_losses(self._core.state)
        if self.ignores_fixed_voters:
            logger.info("controller.quorum.voters has no effect any more: the voters are in the log")
        self._storage.write_mark()
        self._running = True
        self._calls.open()
        self._step(events.Started())

    def _log_losses(self, state: CoreState) -> None:
        """Log what the start truncated. :class:`QuorumStateError` if flushed records have no other holder."""
        for cut in self._log.recovery_report.truncations:
            what = f"{cut.lost_bytes} bytes from position {cut.position} on were truncated: {cut.reason}"
            logger.warning("%s: %s", cut.path, what)
        if state.recovery is None:
            return
        flushed = "an unknown offset" if state.recovery.end_offset is None else state.recovery.end_offset
        lost = f"{self._log.directory} was flushed up to {flushed} and ends at {self._log.log_end_offset}"
        way_out = "restore the log from a copy, or "
        if self._log.log_end_offset > 0:
            way_out += f"remove {self._storage.mark.path} to continue without the rest"
        else:
            way_out += "format the metadata directory again: nothing is left of it"
        knows_no_other = set(self._config.bootstrap_servers) <= {self._local_address}
        if knows_no_other and state.voters.ids == (self._local.id,) and not _names_others(state):
            # The lost records may have added other voters: alone, this one would fork the metadata.
            others = "name the voters that were added in controller.quorum.bootstrap.servers"
            raise QuorumStateError(
                f"{lost}: records are lost, and no other voter is known. If there are others, {others}:"
                f" they have the rest. If there are none, {way_out}"
            )
        logger.error("%s: until the rest is fetched again, this replica neither votes nor counts", lost)
        logger.error("If a majority of the voters has lost records, no leader is elected: then %s", way_out)

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
        if not self._effects or self._flushing is None:
            return False
        return isinstance(self._effects[0], TruncateTo | effects.InstallSnapshot | effects.EndRecovery)

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

    def _is_replaced_at_once(self) -> bool:
        """Whether an election state is followed by a newer one before anything that relies on it: an only
        voter is a candidate and the leader in one step.
        """
        later = (effect for effect in self._effects if not isinstance(effect, effects.LeaderChanged))
        return isinstance(next(later, None), effects.PersistElectionState)

    def _run(self, effect: Effect) -> None:
        match effect:
            case effects.PersistElectionState() if self._is_replaced_at_once():
                pass
            case effects.Send():
                self._calls.send(effect)
            case effects.Reply(token, response):
                self._calls.reply(token, response)
            case effects.ReplyWithRecords():
                self._calls.reply(effect.token, self._storage.with_records(effect))
            case effects.ReplyWithSnapshot():
                self._calls.reply(effect.token, self._storage.with_snapshot(effect))
            case effects.CheckSnapshot():
                self._check_snapshot(effect)
            case effects.InstallSnapshot(snapshot_id):
                self._storage.apply(effect)
                self._delivery.replace_by(self._storage.snapshots.reader(snapshot_id))
            case FlushLog():
                self._flush_wanted = effect
            case effects.EndRecovery(end_offset):
                self._storage.apply(effect)
                logger.warning(
                    "The lost records are fetched again, up to offset %d: taking part again", end_offset
                )
            case effects.AdvanceHighWatermark(high_watermark):
                self._delivery.high_watermark = high_watermark
            case effects.LeaderChanged(leader, epoch, after_offset, address):
                known = LeaderAndEpoch(None if leader is None else leader.id, epoch)
                if known != self._leader:
                    logger.info("Epoch %d: leader is %s", epoch, "unknown" if leader is None else leader)
                self._leader, self._leader_address = known, address
                self._delivery.leader_changed(known, after_offset)
            case effects.PeerDisbelieved(reason):
                self._calls.log_malformed(reason)
            case effects.VotersChanged(voters):
                logger.info("The voters are now %s", ", ".join(f"{v.key} at {v.address}" for v in voters))
            case _:
                self._storage.apply(effect)

    # --- flushing and delivering --------------------------------------------------------------------------

    def _maybe_flush(self) -> None:
        if self._flush_wanted is None or self._flushing is not None or not self._running:
            return
        wanted, self._flush_wanted = self._flush_wanted, None
        job = self._log.prepare_flush()
        loop = asyncio.get_running_loop()
        self._flushing = loop.run_in_executor(self._flush_executor, self._storage.flush, job)

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

    def _check_snapshot(self, effect: effects.CheckSnapshot) -> None:
        job = asyncio.get_running_loop().run_in_executor(
            self._flush_executor, self._storage.prepare_check(effect)
        )

        def on_checked(check: asyncio.Future[SnapshotInfo]) -> None:
            if check.cancelled() or not self._running:
                return
            error = check.exception()
            if error is None:
                info = check.result()
                self._storage.checked[effect.snapshot_id] = info
                self._step(events.SnapshotChecked(effect.attempt, True, info.voters))
            elif isinstance(error, CorruptSnapshotError):
                logger.error("A damaged snapshot is fetched again: %s", error)
                self._step(events.SnapshotChecked(effect.attempt, False))
            else:
                self._fail(error)

        job.add_done_callback(on_checked)

    def _maybe_deliver(self) -> None:
        if self._running and not self._delivering and self._delivery.has_work:
            self._delivering = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        """One slice per turn of the loop, so that a long log does not delay the node's other work."""
        self._delivering = False
        if not self._running:
            return
        try:
            self._delivery.deliver_slice(self._listeners)
        except Exception as error:
            self._fail(error)
            return
        self._maybe_deliver()

    async def _in_thread(self, job: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._flush_executor, job)

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
        self._snapshots.forget()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._calls.close()
