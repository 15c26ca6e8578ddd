"""Where the simulation looks on in a node: around the controller's commands, and before and after its loader.

They change nothing that the product does; what they see goes to :mod:`.checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.schema import Message
from pykraft.metadata_log.controller.driver import ControllerDriver
from pykraft.metadata_log.controller.requests import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.quorum.driver import CommittedBatch, LeaderAndEpoch, SnapshotId

if TYPE_CHECKING:
    from pykraft.jepsen_like.sim.cluster.world import SimNode


class WatchedController(ControllerDriver):
    """The product's controller; the checks see what an answer was decided on, and when it leaves."""

    node: SimNode

    @property
    def is_settled(self) -> bool:
        """Active, with nothing in flight, and nothing left that follows from what is committed."""
        return self.active and not self._core.is_sweeping and not self._core.has_pending

    async def broker_heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        self.node.world.wishes_heard[request.broker_id] += request.want_fence
        return await super().broker_heartbeat(request)

    async def _run_parts(
        self, decisions: Sequence[Callable[[int], ControllerResult[Any]]], timeout_ms: int | None
    ) -> list[Any]:
        rests_on, epoch = -1, self._epoch

        def watched(decide: Callable[[int], ControllerResult[Any]], now_ms: int) -> ControllerResult[Any]:
            nonlocal rests_on
            rests_on = self._core.last_offset
            result = decide(now_ms)
            if result.records:
                rests_on += len(result.records)
            return result

        checker = self.node.world.checker
        try:
            answers = await super()._run_parts([partial(watched, one) for one in decisions], timeout_ms)
        except KafkaError as error:
            checker.answered(self.node, rests_on, epoch, error.code)
            raise
        checker.answered(self.node, rests_on, epoch, None)
        return answers

    async def _ask_quorum(self, request: Message, timeout_ms: int) -> Message:
        if not self.node.world.voter_watch.admits(request):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the admin has thought better of it")
        answer = await super()._ask_quorum(request, timeout_ms)
        self.node.world.voter_watch.answered(self.node, request)
        return answer


class Probe:
    """A quorum listener of the simulation. A node's first sees commits before the product, its last after."""

    def __init__(self, node: SimNode, *, first: bool) -> None:
        self._node = node
        self._first = first
        self._snapshot_id = SnapshotId(0, 0)

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        checker = self._node.world.checker
        if self._first:
            checker.delivered(self._node, batches)
        else:
            checker.folded(self._node)

    def begin_snapshot(self, snapshot_id: SnapshotId, append_time_ms: int) -> None:
        """The loader shows nobody what is half loaded."""
        self._snapshot_id = snapshot_id

    def handle_snapshot_values(self, values: Sequence[bytes]) -> None:
        """As above."""

    def finish_snapshot(self) -> None:
        if self._first:
            self._node.world.checker.snapshot_delivered(self._node, self._snapshot_id)
        else:
            self._node.world.checker.folded(self._node)

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        checker = self._node.world.checker
        if self._first:
            checker.leader_announced(self._node, leader)
        else:
            checker.folded(self._node)
