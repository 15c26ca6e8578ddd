"""The same random scripts of raw requests are answered as Apache Kafka 4.3 has answered them."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from pykraft.group_coordinator.codec import decode_record
from pykraft.group_coordinator.config import GroupConfig
from pykraft.group_coordinator.replay import replay_all
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.group_coordinator.state import EMPTY_STATE
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.kafka_protocol.schema import Message
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE
from tests.faults import unexpected
from tests.group_coordinator import kafka_scripts, tools

RECORDED = kafka_scripts.recorded()
CONFIG = GroupConfig(offsets_topic_num_partitions=1, consumer_assignment_interval_ms=0, consumer_max_size=4)


async def play(script: list[kafka_scripts.Step]) -> list[Any]:
    """The answers; a request that is refused has changed nothing, and the log says the same as memory."""
    writer = tools.MemoryWriter()
    service = GroupCoordinatorService(CONFIG, writer, tools.ManualClock(), Random(1), unexpected)
    image = tools.make_image(kafka_scripts.TOPICS)
    service.on_metadata(MetadataDelta(EMPTY_IMAGE, image), image)
    service.on_elected(0, 1)
    await asyncio.sleep(0.0)
    for _ in range(10):
        await asyncio.sleep(0)
    shard = service._runtime._hosted[0].shard
    context = RequestContext(client_id="test", client_address="127.0.0.1")

    async def send(request: Message, version: int) -> Any:
        before, end = shard.state, len(writer.logs.get(0, []))
        answer = await tools.answer(service, context, request, version)
        if getattr(answer, "error_code", 0):
            assert shard.state is before and len(writer.logs.get(0, [])) == end
        return answer

    ids = {name: tools.topic_id(name) for name in kafka_scripts.TOPICS}
    answers = await kafka_scripts.Player(send, "g", ids).play(script)
    records = [decode_record(key, value) for key, value in writer.logs.get(0, [])]
    assert replay_all(EMPTY_STATE, [record for record in records if record is not None]) == shard.state
    await service.stop()
    return answers


@pytest.mark.parametrize("seed", range(kafka_scripts.SCRIPTS))
def test_coordinator_answers_as_kafka_does(seed: int) -> None:
    script = kafka_scripts.make_script(seed)
    answers = asyncio.run(play(script))
    for number, (step, ours, kafkas) in enumerate(zip(script, answers, RECORDED[seed], strict=True)):
        assert _plain(ours) == kafkas, f"step {number}: {step}"


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, int) else value
