"""A simulated quorum: replicas, the links between them, a client, and the invariants after every event.

All randomness comes from the seed. The world offers faults as methods; :mod:`.nemesis` decides which are
used, and when. Message objects are passed without copies: they are immutable.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pykraft.jepsen_like.simulation.quorum.invariants.checker import Checker
from pykraft.jepsen_like.simulation.quorum.invariants.history import History, StoredBatch
from pykraft.jepsen_like.simulation.quorum.narrator import Narrator
from pykraft.jepsen_like.simulation.quorum.options import ClusterOptions
from pykraft.jepsen_like.simulation.quorum.replica import SimReplica
from pykraft.jepsen_like.simulation.quorum.scheduler import Scheduler
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.config import QuorumConfig
from pykraft.quorum.core.effects import CheckSnapshot, Effect, Send
from pykraft.quorum.core.events import Event, Proposed, RequestReceived, ResponseReceived, UpgradeProposed
from pykraft.quorum.core.messages import Request, Response, VoterChangeRequest
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.runtime.address import Address
from pykraft.runtime.simulated.links import Links

CONFIG = QuorumConfig(
    election_timeout_ms=100,
    fetch_timeout_ms=200,
    election_backoff_max_ms=100,
    request_timeout_ms=150,
    retry_backoff_ms=10,
    fetch_max_wait_ms=60,
    fetch_snapshot_max_bytes=20_000,
)
REFUSED_AFTER_MS = 2
STRANGER = -1  # the sender id of a stranger to the quorum
ADMIN = 0  # the sender id of admins that change the voters; no replica has this id
SLOW_FLUSH_MS = 250


class SimCluster:
    """``events`` counts the events given to cores; ``trace`` is a hash over all of them."""

    def __init__(self, seed: int, options: ClusterOptions, config: QuorumConfig = CONFIG) -> None:
        self.seed = seed
        self.options = options
        if options.snapshot_piece_bytes is not None:
            config = replace(config, fetch_snapshot_max_bytes=options.snapshot_piece_bytes)
        self.config = config
        self.rng = random.Random(seed)
        self.scheduler = Scheduler()
        self.links = Links(random.Random(seed + 1), max_delay_ms=options.max_delay_ms)
        keys = [
            ReplicaKey(i, Uuid(bytes([i]) * 16)) for i in range(1, options.voters + options.observers + 1)
        ]
        named = [ReplicaKey(key.id) if options.static_voters else key for key in keys[: options.voters]]
        self.voters = VoterSet([Voter(key, Address("sim", key.id)) for key in named])
        self.configs = {key.id: self._config_of(key.id) for key in keys}
        self.checker = Checker(History())
        self.replicas = {key.id: SimReplica(self, key) for key in keys}
        self.checker.history.replicas = list(self.replicas.values())
        self.kill_chance: dict[type[Effect], float] = {}
        self.on_vote_granted: Callable[[SimReplica], None] | None = None
        self.on_elected: Callable[[SimReplica], None] | None = None
        self.on_killed: Callable[[SimReplica, Effect], None] | None = None
        self.max_fetch_batches = options.max_fetch_batches
        self.hold_answers_of: set[int] = set()
        self.hold_flushes_of: set[int] = set()
        self.hold_checks_of: set[int] = set()
        self.held_checks: list[tuple[SimReplica, int, CheckSnapshot]] = []
        self.held_flushes: list[tuple[SimReplica, int, int, int]] = []
        self.held: list[tuple[SimReplica, int, int, Response]] = []
        self.voter_changes: Counter[str] = Counter()
        self.has_stranger = False
        self.events = 0
        self.elections = 0
        self.leader_changes_after_commit = 0
        self.trace = hashlib.blake2b(digest_size=16)
        self.narrator: Narrator | None = None
        self._next_token = 0
        self._next_value = 0

    def _config_of(self, node_id: int) -> QuorumConfig:
        """Only the initial voters are controllers, and join by themselves."""
        if not self.options.voters_in_log and not self.options.upgraded:
            return self.config
        count = self.options.voters + self.options.observers
        return replace(
            self.config,
            auto_join=self.options.auto_join and node_id <= self.options.voters,
            bootstrap_servers=tuple(Address("sim", id) for id in range(1, count + 1)),
        )

    # --- stepping -----------------------------------------------------------------------------------------

    def start_all(self) -> None:
        for replica in self.replicas.values():
            if not replica.alive:
                replica.start()

    def note_step(self, replica: SimReplica, event: Event) -> None:
        self.events += 1
        state = replica.core.state
        line = (
            f"{self.scheduler.now_ms} {replica.id} {type(event).__name__} {type(state.role).__name__}"
            f" {state.epoch} {state.log.end_offset} {state.log.flushed_offset} {state.high_watermark}"
        )
        self.trace.update(line.encode())
        if self.narrator is not None:
            self.narrator.stepped(self.scheduler.now_ms, replica, event)

    def log_event(self, who: int | str, what: str) -> None:
        """Add a line to the story. ``who``: a replica's id, or another part of the world."""
        if self.narrator is not None:
            self.narrator.log_event(self.scheduler.now_ms, who, what)

    def run_until(self, condition: Callable[[], bool], limit_ms: int) -> bool:
        """Run until the condition holds (checked after each event) or the virtual time is over."""
        scheduler = self.scheduler
        while not condition():
            if not scheduler.run_next(limit_ms):
                return False
        return True

    def postpone(self, replica: SimReplica, callback: Callable[..., None], *args: Any) -> bool:
        """Whether the replica is paused; the call is then postponed until it continues."""
        if replica.paused_until_ms <= self.scheduler.now_ms:
            return False
        self.scheduler.at(replica.paused_until_ms, callback, *args)
        return True

    def start_flush(self, replica: SimReplica, end_offset: int, generation: int) -> None:
        if replica.id in self.hold_flushes_of:
            self.held_flushes.append((replica, replica.incarnation, end_offset, generation))
            return
        longest_ms = self.options.max_flush_ms
        if replica.slow_disk_until_ms > self.scheduler.now_ms:
            longest_ms = max(longest_ms, SLOW_FLUSH_MS)
        delay_ms = 1 + replica.rng.randrange(longest_ms)
        self.scheduler.after(delay_ms, replica.finish_flush, replica.incarnation, end_offset, generation)

    def start_check(self, replica: SimReplica, effect: CheckSnapshot) -> None:
        if replica.id in self.hold_checks_of:
            self.held_checks.append((replica, replica.incarnation, effect))
            return
        delay_ms = 1 + replica.rng.randrange(self.options.max_flush_ms)
        self.scheduler.after(delay_ms, replica.finish_check, replica.incarnation, effect)

    # --- messages -----------------------------------------------------------------------------------------

    def send_request(self, sender: SimReplica, effect: Send) -> None:
        receiver = self.replicas[effect.address.port]
        scheduler = self.scheduler
        deadline = (sender.request_failed, sender.incarnation, effect.correlation_id)
        delays = self.links.deliveries(sender.id, receiver.id)
        if delays and not receiver.alive and (receiver.id, sender.id) not in self.links.cuts:
            scheduler.after(REFUSED_AFTER_MS, *deadline)
            return
        scheduler.after(effect.timeout_ms, *deadline)
        for delay_ms in delays:
            scheduler.after(
                delay_ms,
                self._request_arrives,
                sender.id,
                sender.incarnation,
                effect.correlation_id,
                effect.request,
                receiver,
            )

    def receive_from_stranger(self, request: Request, receiver: SimReplica) -> None:
        """A stranger's request arrives at once; its answer is dropped."""
        self._request_arrives(STRANGER, 0, 0, request, receiver)

    def _request_arrives(
        self, sender_id: int, incarnation: int, correlation_id: int, request: Request, receiver: SimReplica
    ) -> None:
        if not receiver.alive:
            return
        if self.postpone(
            receiver, self._request_arrives, sender_id, incarnation, correlation_id, request, receiver
        ):
            return
        self._next_token += 1
        token = self._next_token
        receiver.requests[token] = (sender_id, incarnation, correlation_id, request)
        receiver.step(RequestReceived(token, request))

    def send_response(self, sender: SimReplica, token: int, response: Response) -> None:
        assert token not in sender.answered, "a request was answered twice"
        sender.answered.add(token)
        to, incarnation, correlation_id, _ = sender.requests[token]
        if to == STRANGER:
            return
        if to == ADMIN:
            self.voter_changes[response.error.name] += 1
            return
        receiver = self.replicas[to]
        if sender.id in self.hold_answers_of:
            self.held.append((receiver, incarnation, correlation_id, response))
            return
        for delay_ms in self.links.deliveries(sender.id, to):
            self.scheduler.after(
                delay_ms, self._response_arrives, receiver, incarnation, correlation_id, response
            )

    def _response_arrives(
        self, receiver: SimReplica, incarnation: int, correlation_id: int, response: Response
    ) -> None:
        """Repeated and late answers arrive too; those for an earlier incarnation have no connection."""
        if incarnation != receiver.incarnation or not receiver.alive:
            return
        if self.postpone(receiver, self._response_arrives, receiver, incarnation, correlation_id, response):
            return
        receiver.outstanding.discard(correlation_id)
        receiver.step(ResponseReceived(correlation_id, response))

    def release_flushes(self) -> None:
        """Finish the held flushes."""
        self.hold_flushes_of.clear()
        held, self.held_flushes = self.held_flushes, []
        for replica, *flush in held:
            replica.finish_flush(*flush)

    def release_checks(self) -> None:
        """Finish the held checks of snapshots."""
        self.hold_checks_of.clear()
        held, self.held_checks = self.held_checks, []
        for replica, incarnation, effect in held:
            replica.finish_check(incarnation, effect)

    def release_answers(self) -> None:
        """Deliver the held answers, late."""
        self.hold_answers_of.clear()
        held, self.held = self.held, []
        for answer in held:
            self._response_arrives(*answer)

    # --- faults -------------------------------------------------------------------------------------------

    def killed(self, replica: SimReplica, effect: Effect) -> None:
        """The replica dies right after ``effect``, before the next one."""
        replica.crash()
        if self.on_killed is not None:
            self.on_killed(replica, effect)

    def pause(self, replica: SimReplica, duration_ms: int) -> None:
        replica.paused_until_ms = self.scheduler.now_ms + duration_ms

    def leader(self) -> SimReplica | None:
        """The leader of the highest epoch, if it is alive."""
        leading = [replica for replica in self.replicas.values() if replica.leads]
        return max(leading, key=lambda replica: replica.core.state.epoch, default=None)

    def leader_elected(self, replica: SimReplica) -> None:
        self.elections += 1
        history = self.checker.history
        if history.acknowledged:
            self.leader_changes_after_commit += 1
        if self.on_elected is not None:
            self.on_elected(replica)

    def vote_granted(self, replica: SimReplica) -> None:
        if self.on_vote_granted is not None:
            self.on_vote_granted(replica)

    def holds_all_committed(self, replica: SimReplica) -> bool:
        """Whether its disk holds everything committed."""
        committed = self.checker.history.committed
        if not committed:
            return True
        index = len(committed) - 1
        return (
            replica.durable_end_offset >= committed[index].end_offset
            and len(replica.batches) > index
            and replica.batches[index] == committed[index]
        )

    # --- the admin ----------------------------------------------------------------------------------------

    def ask_for_change(self, leader: SimReplica, request: VoterChangeRequest) -> None:
        """An admin asks a replica that leads (or believes so); the answer is counted in ``voter_changes``."""
        self._next_token += 1
        leader.requests[self._next_token] = (ADMIN, 0, 0, request)
        leader.step(RequestReceived(self._next_token, request))

    def upgrade(self, leader: SimReplica) -> str | None:
        """Have a replica that leads (or believes so) append kraft.version 1, or return its objection."""
        core = leader.core
        assert core.may_propose(core.state.epoch)
        objection = core.upgrade_objection(leader.clock.now_ms())
        self.log_event("admin", f"asks {leader.id} for kraft.version 1: {objection or 'appended'}")
        if objection is None:
            leader.step(UpgradeProposed(core.state.epoch))
        return objection

    def address_of(self, replica: SimReplica) -> Address:
        return Address("sim", replica.id)

    def voter_sets(self) -> list[VoterSet]:
        """The voter sets in the logs of all replicas, dead or alive."""
        return [r.voters_in_log for r in self.replicas.values() if len(r.voters_in_log)]

    def holds_vote_of(self, key: ReplicaKey) -> bool:
        """Whether the disk that votes under ``key`` is still there."""
        replica = self.replicas[key.id]
        return replica.may_start and key.matches(replica.key)

    def keeps_records(self, key: ReplicaKey) -> bool:
        """Whether that disk still holds all that it had flushed."""
        return self.holds_vote_of(key) and not self.replicas[key.id].has_lost_records

    # --- the client ---------------------------------------------------------------------------------------

    def propose(self, replica: SimReplica, records: int = 1) -> object:
        """Propose a new value to a replica that leads (or believes so)."""
        core = replica.core
        epoch, offset = core.state.epoch, core.state.log.end_offset
        assert core.may_propose(epoch)
        self._next_value += 1
        value = self._next_value
        replica.proposals.append((offset, epoch, value))
        replica.step(Proposed(epoch, records, value))
        return value

    def start_client(self) -> None:
        """Start the client: it proposes to a leading replica at random intervals, forever."""
        self.scheduler.after(1 + self.rng.randrange(2 * self.options.proposal_gap_ms), self._client_turn)

    def _client_turn(self) -> None:
        leading = [
            r for r in self.replicas.values() if r.leads and r.paused_until_ms <= self.scheduler.now_ms
        ]
        if leading:
            self.propose(self.rng.choice(leading), 1 + self.rng.randrange(3))
        self.start_client()

    def acknowledge(self, batch: StoredBatch) -> None:
        if self.narrator is not None:
            self.narrator.acknowledged(self.scheduler.now_ms)
        self.checker.history.acknowledged[batch.value] = batch
