"""The end of a schedule with several log directories: what it waits for."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.jepsen_like.simulation.cluster.clients.directories import Directories
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import DescribeLogDirsResponse, DescribeLogDirsResult

TOPIC = Uuid(b"t" * 16)
DIRECTORY = Uuid(b"d" * 16)


def directories(logs: dict[tuple[str, int], Any], offline: dict[tuple[str, int], Any]) -> Directories:
    """One broker to which ``t-0`` is assigned, in ``/data``."""
    partition = SimpleNamespace(replicas=(4,), directories={4: DIRECTORY})
    topics = {TOPIC: SimpleNamespace(name="t", partitions=[partition])}
    found = SimpleNamespace(
        logs=logs,
        offline=offline,
        futures={},
        wanted_dirs={},
        dirs=SimpleNamespace(path_of=lambda directory: "/data"),
    )
    sizes = {"/data": dict.fromkeys(logs, 0)}
    disk = SimpleNamespace(log_sizes=lambda path: sizes.get(path, {}))
    world = SimpleNamespace(
        seed=0,
        brokers=[SimpleNamespace(id=4, logs=found, disk=disk)],
        checker=SimpleNamespace(model=SimpleNamespace(topics=topics)),
        options=SimpleNamespace(log_dirs=2),
        failed=lambda violation: None,
    )
    answer = DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(error_code=0, log_dir=path, topics=[]) for path in ("/data", "/data-2")
        ]
    )
    requests = SimpleNamespace(call=lambda *request: asyncio.sleep(0, answer))
    return Directories(cast(Any, world), cast(Any, requests), cast(Any, None))


def test_a_log_that_is_about_to_be_opened_is_waited_for() -> None:
    """Else it may be opened between the broker's answer and the look at its disk."""
    opened = SimpleNamespace(topic_id=TOPIC, log_dir="/data")
    earlier = SimpleNamespace(topic_id=Uuid(b"e" * 16), log_dir="/data")
    assert directories({}, {}).find_unfinished() == "t-0 of broker 4 is not open"
    assert directories({("t", 0): earlier}, {}).find_unfinished() == "t-0 of broker 4 is not open"
    assert directories({("t", 0): opened}, {}).find_unfinished() is None
    assert directories({}, {("t", 0): "damaged"}).find_unfinished() is None


def test_a_difference_between_answer_and_disk_is_a_violation_if_it_stays() -> None:
    """A late request may delete a topic between the two."""
    opened = SimpleNamespace(topic_id=TOPIC, log_dir="/data")
    found = directories({("t", 0): opened}, {})
    (node,) = found._world.brokers
    asyncio.run(found.check(node))
    assert not found.checked
    with pytest.raises(InvariantViolation, match=r"on the disk differ \[\('t', 0\)\]"):
        found.fail()
    node.disk.log_sizes("/data").clear()
    asyncio.run(found.check(node))
    assert found.checked == {4}
    found.fail()
