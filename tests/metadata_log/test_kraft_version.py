"""UpdateFeatures that upgrades kraft.version, from the request to its commit in the quorum."""

import asyncio

import pytest

from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.cluster import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.codec import decode_record
from pykraft.metadata_log.records import FeatureLevelRecord, NoOpRecord
from tests.metadata_log.driver_world import NODE, World
from tests.waits import settle


async def upgrade(world: World, *, validate_only: bool = False, **others: int) -> UpdateFeaturesResponse:
    levels = {"kraft.version": 1, **{name.replace("_", "."): level for name, level in others.items()}}
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=1)
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    body = await world.driver.forward(RequestContext(), ApiKey.UPDATE_FEATURES, 2, request.encode(2), 30_000)
    return UpdateFeaturesResponse.decode(body, 2)


async def test_upgrade_is_answered_when_it_is_committed(world: World) -> None:
    before = len(world.quorum.batches)
    answer = asyncio.ensure_future(upgrade(world, transaction_version=1))
    await settle()
    levels, control, behind = world.quorum.batches[before:]
    assert [decode_record(value) for value in levels.values] == [FeatureLevelRecord("transaction.version", 1)]
    assert (control.values, control.last_offset - control.base_offset) == ((), 1)
    assert [decode_record(value) for value in behind.values] == [NoOpRecord()]
    for _ in range(3):
        assert not answer.done()
        world.quorum.commit(at_most=1)
        await settle()
    assert (await answer).error_code == 0
    assert (await upgrade(world)).error_code == 0, "it is at that level"
    assert world.quorum.batches[-1] is behind


async def test_objection_and_validation_append_nothing(world: World) -> None:
    before = len(world.quorum.batches)
    assert (await upgrade(world, validate_only=True)).error_code == 0
    world.quorum.objection = "voter 3 is away"
    for validate_only in (False, True):
        answer = await upgrade(world, validate_only=validate_only, transaction_version=1)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "voter 3 is away" in (answer.error_message or "")
    assert len(world.quorum.batches) == before


async def test_upgrade_of_a_leader_that_is_deposed_before_the_commit_is_not_acknowledged(
    world: World,
) -> None:
    answer = asyncio.ensure_future(upgrade(world))
    await settle()
    world.quorum.elect(2, 2)
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        await answer
    world.quorum.elect(NODE, 3)
