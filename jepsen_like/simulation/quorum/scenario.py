"""Plays a scenario that is written as text against real cores, and writes down all messages and effects.

A scenario file has commands (lines that begin with ``>``), each followed by what happened: every message as
it is delivered or lost, and what each replica then does to its disk and its high watermark. Nothing happens
except what a command asks for, so that a reviewer can read the protocol; the usual invariants hold
throughout. Commands:

``voters N`` (and ``observers N`` before it) starts the replicas; ``voters N in log`` or ``voters N in log
auto-join`` if they may change, ``voters N fixed`` if they are known by id alone · ``ask A add B``, ``ask A
remove B``, ``ask A upgrade``: an admin asks A, which leads · ``timeout
A``: A's election timer expires · ``stand A``: the same when no replica has heard from a leader recently;
pre-votes on links that are not cut are delivered · ``elected A``: the same, with everything delivered, shown
as one line · ``wait MS``: virtual time passes · ``deliver``: all messages and flushes until none is left, or
``deliver A>B`` those on that link · ``lose A>B`` · ``repeat A>B``: a second copy of the next message on that
link · ``cut A>B`` / ``heal`` · ``slow-disk A`` / ``flush A`` · ``small-fetches``: one batch per answer ·
``propose A`` · ``stop A`` gracefully · ``snapshot A``: A takes a snapshot and deletes the log before it ·
``crash A`` · ``restart A`` · ``replace-disk A`` of a crashed replica · ``state``.
"""

from dataclasses import dataclass, replace

from pykraft.jepsen_like.simulation.quorum.cluster import ADMIN, CONFIG, SimCluster
from pykraft.jepsen_like.simulation.quorum.directed.elections import run_out_timer
from pykraft.jepsen_like.simulation.quorum.invariants.checker import Checker
from pykraft.jepsen_like.simulation.quorum.invariants.history import ReplicaView
from pykraft.jepsen_like.simulation.quorum.options import ClusterOptions
from pykraft.jepsen_like.simulation.quorum.replica import SimReplica
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core import effects as e
from pykraft.quorum.core import messages as m
from pykraft.quorum.core.events import ShutdownRequested
from pykraft.quorum.core.log_shape import BEGINNING
from pykraft.quorum.core.roles import Follower
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet

PROMPT = "> "


@dataclass(slots=True)
class _UnderWay:
    """One message on a link: a request (``answers`` is None) or the answer to one."""

    sender: int
    receiver: int
    message: m.Request | m.Response
    incarnation: int
    correlation_id: int
    is_answer: bool


class Scenario(SimCluster):
    """A cluster in which messages and flushes wait for a command."""

    def __init__(self, voters: int, observers: int, *, how: str) -> None:
        options = ClusterOptions(
            voters=voters,
            observers=observers,
            static_voters=how == "fixed",
            upgraded=how == "fixed",
            voters_in_log=how.startswith("in log"),
            auto_join=how.endswith("auto-join"),
        )
        super().__init__(1, options, replace(CONFIG, fetch_snapshot_max_bytes=40))
        self.lines: list[str] = []
        self.under_way: list[_UnderWay] = []
        self.slow: set[int] = set()
        self.flushes: list[tuple[SimReplica, int, int, int]] = []
        self.checks: list[tuple[SimReplica, int, e.CheckSnapshot]] = []
        self.checker = _Narrator(self)
        self.checker.history.replicas = list(self.replicas.values())

    def send_request(self, sender: SimReplica, effect: e.Send) -> None:
        self.under_way.append(
            _UnderWay(
                sender.id,
                effect.address.port,
                effect.request,
                sender.incarnation,
                effect.correlation_id,
                is_answer=False,
            )
        )

    def send_response(self, sender: SimReplica, token: int, response: m.Response) -> None:
        to, incarnation, correlation_id, _ = sender.requests[token]
        if isinstance(response, m.VoterChangeResponse) and to == ADMIN:
            self.lines.append(f"   {sender.id}: answers the admin: {response.message or 'done'}")
            return
        self.under_way.append(_UnderWay(sender.id, to, response, incarnation, correlation_id, is_answer=True))

    def start_flush(self, replica: SimReplica, end_offset: int, generation: int) -> None:
        self.flushes.append((replica, replica.incarnation, end_offset, generation))

    def start_check(self, replica: SimReplica, effect: e.CheckSnapshot) -> None:
        self.checks.append((replica, replica.incarnation, effect))

    # --- commands -----------------------------------------------------------------------------------------

    def run(self, command: str) -> None:
        match command.split():
            case ["timeout", node]:
                run_out_timer(self._replica(node))
            case ["stand", node]:
                self._start_election(self._replica(node))
            case ["elected", node]:
                self._start_election(self._replica(node))
                self._deliver_all()
                self.lines.clear()
                self._print_state()
            case ["small-fetches"]:
                self.max_fetch_batches = 1
            case ["wait", ms]:
                self.run_until(lambda: False, self.scheduler.now_ms + int(ms))
            case ["deliver"]:
                self._deliver_all()
            case ["deliver", link]:
                for item in self._on(link):
                    self._deliver(item)
            case ["lose", link]:
                for item in self._on(link):
                    self._lose(item)
            case ["repeat", link]:
                self.under_way.append(self._on(link)[0])
            case ["cut", link]:
                self.links.cuts.add(_ends(link))
            case ["heal"]:
                self.links.heal()
            case ["slow-disk", node]:
                self.slow.add(int(node))
            case ["flush", node]:
                self.slow.discard(int(node))
                self._flush_ready()
            case ["propose", node]:
                self.propose(self._replica(node))
            case ["snapshot", node]:
                snapshot_id = self._replica(node).snapshots.take()
                self.lines.append(f"   {node}: has written snapshot {snapshot_id}")
                self._replica(node).snapshots.cut()
            case ["stop", node]:
                self._replica(node).step(ShutdownRequested())
            case ["crash", node]:
                self._replica(node).crash()
            case ["restart", node]:
                self._replica(node).start()
            case ["replace-disk", node]:
                replica = self._replica(node)
                replica.replace_disk(ReplicaKey(replica.id, Uuid(bytes([replica.id + 100]) * 16)))
            case ["ask", node, "add", other]:
                added = self._replica(other)
                voter = Voter(added.key, self.address_of(added))
                self.ask_for_change(self._replica(node), m.AddRaftVoterRequest("sim", voter, 1000))
            case ["ask", node, "remove", other]:
                known = self._replica(node).voters_in_log.get(int(other))
                key = ReplicaKey(int(other)) if known is None else known.key
                self.ask_for_change(self._replica(node), m.RemoveRaftVoterRequest("sim", key, 1000))
            case ["ask", node, "upgrade"]:
                objection = self.upgrade(self._replica(node))
                if objection is not None:
                    self.lines.append(f"   {node}: answers the admin: {objection}")
            case ["state"]:
                self._print_state()
            case _:
                raise ValueError(f"unknown command {command!r}")

    def _replica(self, node: str) -> SimReplica:
        return self.replicas[int(node)]

    def _on(self, link: str) -> list[_UnderWay]:
        ends = _ends(link)
        return [item for item in self.under_way if (item.sender, item.receiver) == ends]

    def _start_election(self, replica: SimReplica) -> None:
        run_out_timer(replica)
        for other in self.replicas.values():
            if other.alive and isinstance(other.core.state.role, Follower):
                other.core.state.role.last_contact_ms = None
        while asked := [item for item in self.under_way if _is_pre_vote(item.message)]:
            self._deliver(asked[0])

    def _deliver_all(self) -> None:
        while self.under_way or any(job[0].id not in self.slow for job in self._disk_jobs()):
            self._flush_ready()
            if self.under_way:
                self._deliver(self.under_way[0])

    def _disk_jobs(self) -> list[tuple[SimReplica, int]]:
        return [job[:2] for job in self.flushes] + [job[:2] for job in self.checks]

    def _flush_ready(self) -> None:
        for check in [check for check in self.checks if check[0].id not in self.slow]:
            self.checks.remove(check)
            replica, incarnation, effect = check
            if incarnation == replica.incarnation:
                self.lines.append(f"   {replica.id}: flushed {effect.snapshot_id}, and read it back")
                replica.finish_check(incarnation, effect)
        for flush in [flush for flush in self.flushes if flush[0].id not in self.slow]:
            self.flushes.remove(flush)
            replica, incarnation, end_offset, generation = flush
            if incarnation == replica.incarnation:
                self.lines.append(f"   {replica.id}: flushed to {end_offset}")
                replica.finish_flush(incarnation, end_offset, generation)

    def _deliver(self, item: _UnderWay) -> None:
        receiver = self.replicas[item.receiver]
        stale = item.is_answer and item.incarnation != receiver.incarnation
        if (item.sender, item.receiver) in self.links.cuts or not receiver.alive or stale:
            self._lose(item)
            return
        self.under_way.remove(item)
        self.lines.append(f"{item.sender} → {item.receiver}  {describe(item.message)}")
        if item.is_answer:
            self._response_arrives(receiver, item.incarnation, item.correlation_id, item.message)  # type: ignore[arg-type]
        else:
            self._request_arrives(
                item.sender,
                item.incarnation,
                item.correlation_id,
                item.message,  # type: ignore[arg-type]
                receiver,
            )

    def _lose(self, item: _UnderWay) -> None:
        self.under_way.remove(item)
        self.lines.append(f"{item.sender} ✗ {item.receiver}  {describe(item.message)}")
        asker = self.replicas[item.receiver if item.is_answer else item.sender]
        asker.request_failed(item.incarnation, item.correlation_id)

    def _print_state(self) -> None:
        for replica in self.replicas.values():
            if not replica.alive:
                self.lines.append(f"   {replica.id}: down")
                continue
            state = replica.core.state
            leader = state.leader_id or "-"
            self.lines.append(
                f"   {replica.id}: {type(state.role).__name__}, epoch {state.epoch}, leader {leader}, log"
                f" {_log_text(replica)}, flushed {state.log.flushed_offset}, committed {state.high_watermark}"
            )


class _Narrator(Checker):
    """Checks the invariants, and writes a line for each effect that a reader should see."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario.checker.history)
        self._scenario = scenario

    def effect_done(self, replica: ReplicaView, effect: e.Effect) -> None:
        text = _narrate(effect)
        if text:
            self._scenario.lines.append(f"   {replica.id}: {text}")
        super().effect_done(replica, effect)


def _narrate(effect: e.Effect) -> str | None:
    match effect:
        case e.PersistElectionState(state):
            voted = f", voted {state.voted.id}" if state.voted else ""
            leader = f", leader {state.leader_id}" if state.leader_id else ""
            return f"writes epoch {state.epoch}{voted}{leader}"
        case e.AppendLeaderChange(offset, epoch):
            return f"leads epoch {epoch}; appends LeaderChange at {offset}"
        case e.AppendVoters(offset, end_offset, epoch, voters):
            what = "kraft.version and voters" if end_offset - offset == 2 else "voters"
            return f"appends {what} {_ids(voters)} at {offset} (epoch {epoch})"
        case e.VotersChanged(voters):
            return f"voters are {_ids(voters)}{'' if voters.is_dynamic else ', fixed'}"
        case e.AppendProposal(base_offset, _, epoch, payload):
            return f"appends value {payload} at {base_offset} (epoch {epoch})"
        case e.AppendFetched(batches):
            return "appends " + ", ".join(f"{b.base_offset} (epoch {b.epoch})" for b in batches)
        case e.TruncateTo(end_offset):
            return f"truncates to {end_offset}"
        case e.AdvanceLogStart(snapshot_id):
            return f"cuts its log before {snapshot_id.end_offset}"
        case e.InstallSnapshot(snapshot_id):
            return f"puts snapshot {snapshot_id} in place of its log"
        case e.AdvanceHighWatermark(high_watermark):
            return f"commits to {high_watermark}"
    return None


def describe(message: m.Request | m.Response) -> str:
    """One message as a line."""
    match message:
        case m.VoteRequest():
            what = "Pre-vote" if message.pre_vote else "Vote"
            return (
                f"{what} epoch {message.epoch}, log ends {message.last_offset} in epoch {message.last_epoch}"
            )
        case m.FetchRequest():
            announced = "" if message.announced is None else f"; listens at {message.announced.address}"
            return (
                f"Fetch epoch {message.epoch}, from {message.fetch_offset} after epoch"
                f" {message.last_fetched_epoch}, committed {message.high_watermark}{announced}"
            )
        case m.BeginQuorumEpochRequest():
            return f"BeginQuorumEpoch epoch {message.epoch}"
        case m.EndQuorumEpochRequest():
            successors = ", ".join(str(key.id) for key in message.preferred_successors)
            return f"EndQuorumEpoch epoch {message.epoch}, successors {successors or 'unnamed'}"
        case m.FetchSnapshotRequest():
            return f"FetchSnapshot epoch {message.epoch}, {message.snapshot_id} from byte {message.position}"
        case m.AddRaftVoterRequest():
            return f"AddRaftVoter {message.voter.key.id}"
        case m.RemoveRaftVoterRequest():
            return f"RemoveRaftVoter {message.voter.id}"
        case m.UpdateRaftVoterRequest():
            return f"UpdateRaftVoter {message.voter.key.id}"
    leader = f", leader {message.leader_id}" if message.leader_id else ""
    head = f"· epoch {message.epoch}{leader}"
    if message.error is not ErrorCode.NONE:
        return f"{head}: {message.error.name}"
    match message:
        case m.VoteResponse():
            what = "pre-vote " if message.pre_vote else ""
            return f"{head}: {what}{'granted' if message.vote_granted else 'not granted'}"
        case m.FetchSnapshotResponse():
            end = message.position + len(message.data)
            return f"{head}: {message.snapshot_id} bytes {message.position} to {end} of {message.size_bytes}"
        case m.FetchResponse():
            if message.snapshot_id is not None:
                return f"{head}: snapshot {message.snapshot_id}; committed {message.high_watermark}"
            if message.diverging is not None:
                return (
                    f"{head}: diverges, epoch {message.diverging.epoch} ends {message.diverging.end_offset}"
                )
            records = ", ".join(f"{b.base_offset} (epoch {b.epoch})" for b in message.batches)
            return f"{head}: records {records or 'none'}; committed {message.high_watermark}"
    return f"{head}: ok"


def _is_pre_vote(message: m.Request | m.Response) -> bool:
    return isinstance(message, m.VoteRequest | m.VoteResponse) and message.pre_vote


def _log_text(replica: SimReplica) -> str:
    start = replica.snapshots.start
    held = [f"{b.base_offset}e{b.epoch}" for b in replica.batches if b.base_offset >= start.end_offset]
    if start != BEGINNING:
        held.insert(0, f"{start} |")
    return f"[{' '.join(held)}]"


def _ids(voters: VoterSet) -> str:
    return " ".join(map(str, voters.ids))


def _ends(link: str) -> tuple[int, int]:
    sender, _, receiver = link.partition(">")
    return int(sender), int(receiver)


def play(script: str) -> str:
    """The script with all results filled in; comments, blank lines and commands are unchanged."""
    out: list[str] = []
    scenario: Scenario | None = None
    observers = 0
    for line in script.splitlines():
        if not line.startswith(PROMPT):
            if not line or line.startswith("#"):
                out.append(line)
            continue
        out.append(line)
        match line[len(PROMPT) :].split():
            case ["observers", number]:
                observers = int(number)
                continue
            case ["voters", number, *how]:
                scenario = Scenario(int(number), observers, how=" ".join(how))
                scenario.start_all()
            case _:
                assert scenario is not None, "a scenario begins with 'voters N'"
                scenario.run(line[len(PROMPT) :])
        out += scenario.lines
        scenario.lines.clear()
    return "\n".join(out) + "\n"
