"""The same random scripts of raw requests are answered as Apache Kafka 4.3 has answered them."""

import asyncio
from random import Random
from typing import Any

import pytest

from pykraft.group_coordinator.replay import replay_all
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.group_coordinator.state.codec import decode_record
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.shard_state import EMPTY_STATE
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE
from tests.clocks import ManualClock
from tests.group_coordinator import kafka_scripts, tools
from tests.narrowing import present
from tests.unexpected import unexpected

RECORDED = kafka_scripts.recorded()
CONFIG = GroupConfig(offsets_topic_num_partitions=1, consumer_assignment_interval_ms=0, consumer_max_size=4)


async def play(script: list[kafka_scripts.Step], recorded: list[Any]) -> list[Any]:
    """The answers; a request that is refused has changed nothing, and the log says the same as memory.

    Kafka refuses a static member that joins again without having left, where this coordinator answers it.
    Such a step is not played: its refusal has changed nothing, so that all others can be compared.
    """
    writer = tools.MemoryWriter()
    service = GroupCoordinatorService(CONFIG, writer, ManualClock(), Random(1), unexpected)
    image = tools.make_image(kafka_scripts.TOPICS)
    service.on_metadata(MetadataDelta(EMPTY_IMAGE, image), image)
    service.on_elected(0, 1)
    await asyncio.sleep(0.0)
    for _ in range(10):
        await asyncio.sleep(0)
    shard = service._runtime._hosted[0].shard
    context = RequestContext(client_id="test", client_address="127.0.0.1")

    kafkas = iter(recorded)

    async def send(request: Message, version: int) -> Any:
        before, end = shard.state, len(writer.logs.get(0, []))
        if next(kafkas) == [ErrorCode.UNRELEASED_INSTANCE_ID]:
            assert isinstance(request, ConsumerGroupHeartbeatRequest) and request.instance_id
            owner = present(present(before.consumer_group("g")).static_member(request.instance_id))
            if owner.member_id == request.member_id:
                return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNRELEASED_INSTANCE_ID)
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
    answers = asyncio.run(play(script, RECORDED[seed]))
    for number, (step, ours, kafkas) in enumerate(zip(script, answers, RECORDED[seed], strict=True)):
        assert _plain(ours) == kafkas, f"step {number}: {step}"


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, int) else value
