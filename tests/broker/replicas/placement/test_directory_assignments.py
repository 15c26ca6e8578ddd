"""A broker tells the controller where its replicas are: some at a time, and none keeps another from it."""

import asyncio
from collections.abc import Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, cast

from pykraft.broker.replicas.placement.directory_assignments import LOOKED_AT, WAIT_MS, DirectoryAssignments
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.controller.calls.requests import ReplicaDirectory

LOGS = 6 * LOOKED_AT
KEYS = [("t", index) for index in range(LOGS)]
TOPIC_ID, OLD_DIR, NEW_DIR = Uuid(b"i" * 16), Uuid(b"o" * 16), Uuid(b"n" * 16)


class Reports:
    """A broker whose image knows none of its directories, and a controller that answers as ``script`` says;
    None is no answer. What it assigns is in the image at once. ``looks``: at the image, between two waits.
    """

    def __init__(self, script: Sequence[ErrorCode | None]) -> None:
        self.script = list(script)
        self.looks = [0]
        self.requests: list[list[int]] = []
        self.pauses_ms: list[int] = []
        self.assigned: dict[int, Uuid] = {}
        self.work: list[Coroutine[Any, Any, None]] = []
        partitions = [
            SimpleNamespace(replicas=(1,), directory=lambda node, index=index: self._known(index))
            for index in range(LOGS)
        ]
        topic = SimpleNamespace(id=TOPIC_ID, partitions=partitions)
        opened = SimpleNamespace(topic_id=TOPIC_ID, log_dir="/n")
        dirs = SimpleNamespace(ids={"/n": NEW_DIR}, paths=("/n", "/o"))
        logs = SimpleNamespace(logs=dict.fromkeys(KEYS, opened), unavailable={}, futures={}, dirs=dirs)
        image = SimpleNamespace(topic={"t": topic}.get)
        self.assignments = DirectoryAssignments(
            1,
            cast("Any", logs),
            cast("Any", SimpleNamespace(image=image)),
            cast("Any", self),
            cast("Any", self),
        )

    def _known(self, index: int) -> Uuid:
        self.looks[-1] += 1
        return self.assigned.get(index, OLD_DIR)

    def check_all(self) -> None:
        for key in KEYS:
            self.assignments.check(key)

    def run(self) -> None:
        self.looks = [0]
        (work,) = self.work
        asyncio.run(work)

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.work.append(work)

    async def sleep(self, duration_ms: int) -> None:
        self.pauses_ms.append(duration_ms)
        self.looks.append(0)

    async def assign_replicas_to_dirs(self, places: Sequence[ReplicaDirectory]) -> list[ErrorCode]:
        self.requests.append([place.index for place in places])
        self.looks.append(0)
        answer = self.script.pop(0) if self.script else ErrorCode.NONE
        if answer is None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        self.assigned |= {it.index: it.directory for it in places}
        return [answer] * len(places)


def test_directories_of_many_replicas_are_looked_at_and_reported_some_at_a_time() -> None:
    reports = Reports([])
    reports.check_all()
    reports.run()
    assert reports.requests == [list(range(at, at + LOOKED_AT)) for at in range(0, LOGS, LOOKED_AT)]
    assert max(reports.looks) <= LOOKED_AT
    assert set(reports.pauses_ms) == {WAIT_MS}


def test_directories_that_cannot_be_reported_now_keep_no_others_from_it() -> None:
    reports = Reports([None, None])
    reports.check_all()
    reports.run()
    firsts = [request[0] for request in reports.requests]
    assert firsts == [*range(0, LOGS, LOOKED_AT), 0, LOOKED_AT]
    assert len(reports.assigned) == LOGS


def test_directories_that_no_longer_have_to_be_reported_are_dropped_some_at_a_time() -> None:
    reports = Reports([])
    reports.check_all()
    reports.assigned = dict.fromkeys(range(LOGS - 1), NEW_DIR)
    reports.run()
    assert reports.requests == [[LOGS - 1]]
    assert max(reports.looks) <= LOOKED_AT
