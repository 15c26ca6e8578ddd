"""Without an authorizer every client may do everything: the numbers are Apache Kafka 4.3's."""

import pytest

from pykraft.broker.authorized_operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    NOT_ASKED,
    TOPIC_OPERATIONS,
)
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import ConsumerGroupDescribeRequest, DescribeGroupsRequest
from tests.asynchronous import in_loop
from tests.group_coordinator.coordinators import Coordinator, running_world
from tests.waits import settle

world = in_loop(running_world)


def test_bit_fields_are_those_of_kafka_without_an_authorizer() -> None:
    assert (TOPIC_OPERATIONS, GROUP_OPERATIONS, CLUSTER_OPERATIONS) == (3576, 3400, 8096)


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("consumer", [True, False])
async def test_described_groups_include_operations_if_asked_and_without_an_error(
    world: Coordinator, consumer: bool, wanted: bool
) -> None:
    joining = world.beat("m", 0, group_id="here") if consumer else world.join(group_id="here")
    await settle()
    request = (
        ConsumerGroupDescribeRequest(group_ids=["here", "gone"])
        if consumer
        else DescribeGroupsRequest(groups=["here", "gone"])
    )
    request.include_authorized_operations = wanted
    answer = await world.send(request, 1 if consumer else 6)
    codes = [group.error_code for group in answer.groups]
    assert codes == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    operations = [group.authorized_operations for group in answer.groups]
    assert operations == [GROUP_OPERATIONS if wanted else NOT_ASKED, NOT_ASKED]
    joining.cancel()
