"""How the simulation observes parts of a shipped node that are never compiled: a probe around a method.

A probe belongs to the class. In a simulated process it reports to that process's machine what its parts do;
elsewhere it does nothing. No probe changes what the product does. Their observations go to
:mod:`.checks.commits` and :mod:`.checks.voters`. What is compiled has observers (:mod:`.observers`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from pykraft.broker.logs.log_checkpoints import LogCheckpoints
from pykraft.broker.logs.log_work import LogWork
from pykraft.broker.membership.alter_partition import ControllerReports
from pykraft.broker.peers.marker_sender import MarkerSender
from pykraft.broker.replicas.placement.replica_publisher import ReplicaPublisher
from pykraft.jepsen_like.simulation.cluster.parts import DeltaMirror
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.driver import ControllerDriver
from pykraft.metadata_log.loader import MetadataLoader, MetadataPublisher
from pykraft.quorum.core.effects import AppendLeaderChange, AppendVoters
from pykraft.quorum.driver import CommittedBatch, LeaderAndEpoch, QuorumListener, QuorumNode, SnapshotId
from pykraft.runtime.simulated.processes import current_process

if TYPE_CHECKING:
    from pykraft.broker.replicas.partition.partition import Partition
    from pykraft.jepsen_like.simulation.cluster.node import SimNode


def _probe(owner: type, name: str) -> Callable[[Callable[..., Any]], None]:
    """Have the decorated function run in place of a method, in simulated processes only.

    It is given the machine, the method, the part, and the arguments.
    """

    def put(watch: Callable[..., Any]) -> None:
        method = getattr(owner, name)

        @wraps(method)
        def watched(part: Any, *args: Any, **named: Any) -> Any:
            process = current_process()
            machine = None if process is None else process.machine
            if machine is None:
                return method(part, *args, **named)
            return watch(machine, method, part, *args, **named)

        setattr(owner, name, watched)

    return put


# --- the quorum and what it delivers ----------------------------------------------------------------------


@_probe(QuorumNode, "start")
def _start(
    machine: SimNode, method: Callable[..., Any], part: QuorumNode, listeners: Sequence[QuorumListener] = ()
) -> Any:
    return method(part, [_Probe(machine, first=True), *listeners, _Probe(machine, first=False)])


@_probe(QuorumNode, "_run")
def _run(machine: SimNode, method: Callable[..., None], part: QuorumNode, effect: Any) -> None:
    method(part, effect)
    if isinstance(effect, AppendVoters | AppendLeaderChange):
        machine.watch.voters.appended(machine, effect)


class _Probe:
    """A quorum listener. The first one of a node sees commits before the product, the last one after."""

    def __init__(self, machine: SimNode, *, first: bool) -> None:
        self._machine = machine
        self._first = first
        self._snapshot_id = SnapshotId(0, 0)
        self._values: list[bytes] = []

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """A batch in pieces counts when the last has come."""
        checker = self._machine.watch.checker
        whole = [one for batch in batches if (one := self._join(batch)) is not None]
        if whole and self._first:
            checker.delivered(self._machine, whole)
        elif whole:
            checker.folded(self._machine)

    def _join(self, piece: CommittedBatch) -> CommittedBatch | None:
        del self._values[piece.earlier :]
        assert len(self._values) == piece.earlier, "a piece is missing"
        self._values += piece.values
        return replace(piece, values=tuple(self._values), earlier=0) if piece.is_last_piece else None

    def begin_snapshot(self, snapshot_id: SnapshotId, append_time_ms: int) -> None:
        """The loader does not publish a snapshot that is loaded in part."""
        self._snapshot_id = snapshot_id

    def handle_snapshot_values(self, values: Sequence[bytes]) -> None:
        """As above."""

    def finish_snapshot(self) -> None:
        if self._first:
            self._machine.watch.checker.snapshot_delivered(self._machine, self._snapshot_id)
        else:
            self._machine.watch.checker.folded(self._machine)

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        checker = self._machine.watch.checker
        if self._first:
            checker.leader_announced(self._machine, leader)
        else:
            checker.folded(self._machine)


@_probe(MarkerSender, "_exchange")
def _exchange(
    machine: SimNode, method: Callable[..., Any], part: MarkerSender, node_id: int, due: Sequence[Any]
) -> Any:
    return machine.world.transaction_faults.exchange(method, part, node_id, due)


# --- images and deltas ------------------------------------------------------------------------------------


@_probe(MetadataLoader, "__init__")
def _load(
    machine: SimNode,
    method: Callable[..., None],
    part: MetadataLoader,
    publishers: Sequence[MetadataPublisher] = (),
    *args: Any,
    **named: Any,
) -> None:
    if machine.is_broker:
        machine.parts.mirror = DeltaMirror()
        publishers = [*publishers, machine.parts.mirror]
    method(part, publishers, *args, **named)


# --- the controller ---------------------------------------------------------------------------------------


@_probe(ControllerDriver, "broker_heartbeat")
def _heartbeat(machine: SimNode, method: Callable[..., Any], part: ControllerDriver, request: Any) -> Any:
    machine.watch.fence_requests[request.broker_id] += request.want_fence
    return method(part, request)


@_probe(ControllerDriver, "_run_parts")
async def _decide(
    machine: SimNode,
    method: Callable[..., Any],
    part: ControllerDriver,
    decisions: Iterable[Callable[[int], Any] | None],
    take: Callable[[Any], None],
    timeout_ms: int | None = None,
    **named: Any,
) -> None:
    """Report to the checks which state a response is based on, and when it is sent."""
    core, rests_on, epoch = part._core, -1, part._epoch

    def watched(decide: Callable[[int], Any], now_ms: int) -> Generator[None, None, Any]:
        nonlocal rests_on
        rests_on = core.last_offset
        result = decide(now_ms)
        if isinstance(result, Generator):
            result = yield from result
        rests_on += len(result.records)
        return result

    checker = machine.watch.checker
    all_watched = (None if decide is None else partial(watched, decide) for decide in decisions)
    try:
        await method(part, all_watched, take, timeout_ms, **named)
    except KafkaError as error:
        checker.answered(machine, rests_on, epoch, error.code)
        raise
    checker.answered(machine, rests_on, epoch, None)


@_probe(ControllerDriver, "_ask_quorum")
async def _ask_quorum(
    machine: SimNode, method: Callable[..., Any], part: ControllerDriver, request: Any, timeout_ms: int
) -> Any:
    if not machine.watch.voters.admits(request):
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the administrator does not send the request")
    answer = await method(part, request, timeout_ms)
    machine.watch.voters.answered(machine, request)
    return answer


# --- changes of the ISR -----------------------------------------------------------------------------------


@_probe(ControllerReports, "alter_partitions")
async def _alter_partitions(
    machine: SimNode, method: Callable[..., Any], part: ControllerReports, changes: Sequence[Any]
) -> Any:
    checker = machine.watch.checker
    for change in changes:
        members = [member.broker_id for member in change.new_isr]
        checker.model.note_proposal(change.topic_id, change.index, change.partition_epoch, members)
    machine.watch.proposed(machine.id, part._request(changes))
    answers = await method(part, changes)
    for change, answer in zip(changes, answers, strict=True):
        if answer.error is ErrorCode.NONE:
            checker.isr_answered(change, answer)
    return answers


# --- logs -------------------------------------------------------------------------------------------------


@_probe(LogCheckpoints, "delete_retired_segments")
def _retire(
    machine: SimNode, method: Callable[..., None], part: LogCheckpoints, key: tuple[str, int]
) -> None:
    method(part, key)
    replicas = machine.parts.replicas
    partition = None if replicas is None else replicas.table.find(*key)
    if partition is not None:
        machine.watch.checker.data.deletions.moved(machine, partition)


@_probe(LogWork, "failed")
def _work_failed(
    machine: SimNode, method: Callable[..., None], part: LogWork, work: str, what: str, error: Exception
) -> None:
    """A node goes on after it, but it is a bug, or a violation that a check has found in the work."""
    method(part, work, what, error)
    machine.world.failed(error)


@_probe(ReplicaPublisher, "take_up")
def _take_up(
    machine: SimNode, method: Callable[..., None], part: ReplicaPublisher, partition: Partition
) -> None:
    machine.watch.checker.data.deletions.opened(machine, partition)
    method(part, partition)
