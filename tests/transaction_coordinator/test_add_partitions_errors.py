"""AddPartitionsToTxn that fails as a whole, for example at a broker that is fenced."""

import pytest

from pykraft.broker.apis.table import _BROKERS
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)


@pytest.mark.parametrize("version", [0, 3])
def test_each_partition_of_a_client_has_the_error_of_the_whole_request(version: int) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 2])],
    )
    (api,) = [one for one in _BROKERS if one.request is AddPartitionsToTxnRequest]
    response = api.error_response(request, version, KafkaError(ErrorCode.NOT_COORDINATOR))
    assert isinstance(response, AddPartitionsToTxnResponse)
    (topic,) = response.results_by_topic_v3_and_below
    found = [(one.partition_index, one.partition_error_code) for one in topic.results_by_partition]
    assert found == [(0, ErrorCode.NOT_COORDINATOR), (2, ErrorCode.NOT_COORDINATOR)]


def test_brokers_have_it_for_the_request() -> None:
    (api,) = [one for one in _BROKERS if one.request is AddPartitionsToTxnRequest]
    response = api.error_response(AddPartitionsToTxnRequest(), 5, KafkaError(ErrorCode.NOT_COORDINATOR))
    assert isinstance(response, AddPartitionsToTxnResponse)
    assert response.error_code == ErrorCode.NOT_COORDINATOR
