"""One connection that fails, in its turn or for good, must not affect the others."""

import asyncio
import gc
import struct
from collections.abc import Callable

import pytest
import uvloop

from pykraft.broker.apis.records.produce import Production
from pykraft.broker.serving.listener import KafkaListener
from pykraft.kafka_protocol.connection import FRAMES_PER_CALLBACK, Connection, ResponseSlot
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.runtime.network.tcp import StreamRuntime
from pykraft.runtime.turns import RESUMED_PER_TURN, TurnBudget
from tests.broker.data_cluster import DataCluster, make_batch
from tests.waits import until

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


class Failing:
    """Echoes frames; ``!`` is a bug."""

    def handle_frame(self, connection: Connection, data: memoryview, slot: ResponseSlot) -> None:
        if bytes(data[:1]) == b"!":
            raise RuntimeError("planted")
        slot.complete([bytes(data)])


def test_failed_resumption_leaves_the_others_their_turns() -> None:
    soon: list[Callable[[], None]] = []
    budget = TurnBudget(soon.append, lambda: 0)
    resumed: list[int] = []

    def fail() -> None:
        raise RuntimeError("planted")

    budget.defer(fail)
    for number in range(2 * RESUMED_PER_TURN):
        budget.defer(lambda number=number: resumed.append(number))  # type: ignore[misc]
    with pytest.raises(RuntimeError):
        soon.pop(0)()
    while soon:
        soon.pop(0)()
    assert resumed == list(range(2 * RESUMED_PER_TURN))


@LOOPS
async def test_bug_in_a_later_turn_closes_only_its_own_connection(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    seen: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: seen.append(context.get("exception")))
    listener = KafkaListener(StreamRuntime(loop), "127.0.0.1", 0, "PLAINTEXT")
    await listener.start(Failing())
    count = FRAMES_PER_CALLBACK + 20
    frame, bug = struct.pack(">i", 4) + b"good", struct.pack(">i", 1) + b"!"
    bad_reader, bad_writer = await asyncio.open_connection("127.0.0.1", listener.port)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    bad_writer.write(frame * (FRAMES_PER_CALLBACK + 2) + bug + frame)
    writer.write(frame * count)
    async with asyncio.timeout(10):
        assert await reader.readexactly(8 * count) == frame * count
        while await _read_or_reset(bad_reader):
            pass
    assert listener.connection_count == 1
    assert [str(error) for error in seen] == ["planted"]
    bad_writer.close()
    writer.close()
    await listener.stop()


async def _read_or_reset(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1000)
    except ConnectionResetError:
        return b""


def pending() -> int:
    gc.collect()
    return sum(isinstance(found, Production) for found in gc.get_objects())


@pytest.mark.parametrize("leaves", [False, True])
async def test_request_that_timed_out_or_lost_its_client_is_not_kept_until_the_commit(
    cluster: DataCluster, leaves: bool
) -> None:
    await cluster.create(1, 2)
    client = await cluster.client(1)
    if leaves:
        client.send_produce(make_batch(b"v"), timeout_ms=60_000)
        await until(lambda: len(cluster.partition(1).committed_waiters))
        client.close()
        await until(lambda: cluster.brokers[1].listener.connection_count == 0)
    else:
        result = await client.produce(make_batch(b"v"), timeout_ms=20)
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert pending() == 0
    assert cluster.partition(1).high_watermark == 0
    cluster.partition(1).handle_follower_fetch(2, 1, 100, 0, 0)  # the commit succeeds after all
    assert cluster.partition(1).high_watermark == 1
