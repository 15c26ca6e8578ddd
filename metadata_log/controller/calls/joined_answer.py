"""Joins the responses to the parts of a client's request (:mod:`.request_parts`) into one."""

from __future__ import annotations

from typing import Any

from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.topics import ElectLeadersRequest, ReplicaElectionResult
from pykraft.metadata_log.controller.calls.request_cuts import CUTS
from pykraft.metadata_log.controller.calls.request_parts import asks_for_all


class JoinedAnswer:
    """The response to a whole request, as far as its parts have been decided."""

    def __init__(self, request: Message) -> None:
        self._cut = CUTS.get(type(request))
        self._elects_all = isinstance(request, ElectLeadersRequest) and asks_for_all(request)
        self.whole: Any = None

    def add(self, answer: Any) -> None:
        """The response to the next part."""
        if self._elects_all:
            _leave_out_needless(answer.replica_election_results)
        if self.whole is None:
            self.whole = answer
            return
        cut = self._cut
        assert cut is not None, "a request that cannot be split"
        joined, added = getattr(self.whole, cut.answers), getattr(answer, cut.answers)
        if cut.inner is not None and joined and added and _topic(joined[-1]) == _topic(added[0]):
            # A topic whose partitions are in several parts.
            first, *added = added
            getattr(joined[-1], cut.inner[1]).extend(getattr(first, cut.inner[1]))
        joined.extend(added)


def _leave_out_needless(topics: list[ReplicaElectionResult]) -> None:
    """Partitions that got their leader between two parts were not named by the client."""
    for topic in topics:
        topic.partition_result = [
            result for result in topic.partition_result if result.error_code != ErrorCode.ELECTION_NOT_NEEDED
        ]


def _topic(result: Any) -> str:
    name: str = result.topic if isinstance(result, ReplicaElectionResult) else result.name
    return name
