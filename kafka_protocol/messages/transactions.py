"""Messages of transactional producers and about transactions."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    Request,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    response_to,
    string,
    struct,
)


@message(22, versions="0-5", flexible="2+")
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    """InitProducerId (22): hand out a producer id and epoch, or bump the epoch of a known one.

    Every idempotent producer asks for this, transactional or not. Version 3 lets a producer name its current
    id and epoch (KIP-360). Version 6, two-phase commit, is not stable in Kafka and not served.
    """

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


@response_to(InitProducerIdRequest)
class InitProducerIdResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()


@struct
class AddPartitionsToTxnTopic:
    name: str = string()
    partitions: list[int] = array("int32")


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


@message(24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"]):
    """AddPartitionsToTxn (24): enrol partitions in a transaction.

    Versions up to 3 are sent by clients and carry one transaction; 4 and up by brokers that verify, many at
    once.
    """

    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")
    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int = int32()
    partition_error_code: int = int16()


@struct
class AddPartitionsToTxnTopicResult:
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


@struct
class AddPartitionsToTxnResult:
    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


@response_to(AddPartitionsToTxnRequest)
class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: int = int32()
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3"
    )
    error_code: int = int16("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")


@message(25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"]):
    """AddOffsetsToTxn (25): enrol a group's offsets in a transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@response_to(AddOffsetsToTxnRequest)
class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()


@message(26, versions="0-5", flexible="3+")
class EndTxnRequest(Request["EndTxnResponse"]):
    """EndTxn (26): commit or abort a transaction. Version 5 answers with the new epoch (KIP-890)."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@response_to(EndTxnRequest)
class EndTxnResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)


@struct
class WritableTxnMarkerTopic:
    name: str = string()
    partition_indexes: list[int] = array("int32")


@struct
class WritableTxnMarker:
    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+")


@message(27, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"]):
    """WriteTxnMarkers (27): brokers tell partition leaders how transactions ended.

    Version 2 carries the transaction version, so that leaders can require a bumped epoch (KIP-1228).
    """

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class WritableTxnMarkerTopicResult:
    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@struct
class WritableTxnMarkerResult:
    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@response_to(WriteTxnMarkersRequest)
class WriteTxnMarkersResponse(Message):
    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)


@struct
class TopicRequest:
    name: str = string()
    partition_indexes: list[int] = array("int32")


@message(61, versions="0", flexible="0+")
class DescribeProducersRequest(Request["DescribeProducersResponse"]):
    """DescribeProducers (61): the active producers of partitions, with open transactions (KIP-664)."""

    topics: list[TopicRequest] = array(TopicRequest)


@struct
class ProducerState:
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@struct
class PartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState)


@struct
class TopicResponse:
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


@response_to(DescribeProducersRequest)
class DescribeProducersResponse(Message):
    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)


@message(65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"]):
    """DescribeTransactions (65): some ids' transactions, with their partitions (KIP-664)."""

    transactional_ids: list[str] = array("string")


@struct
class TopicData:
    topic: str = string()
    partitions: list[int] = array("int32")


@struct
class DescribedTransaction:
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


@response_to(DescribeTransactionsRequest)
class DescribeTransactionsResponse(Message):
    throttle_time_ms: int = int32()
    transaction_states: list[DescribedTransaction] = array(DescribedTransaction)


@message(66, versions="0-2", flexible="0+")
class ListTransactionsRequest(Request["ListTransactionsResponse"]):
    """ListTransactions (66): the transactional ids that this broker coordinates (KIP-664).

    Version 1 filters by how long transactions have been open (KIP-994), 2 by a regular expression (KIP-1152).
    An empty filter, or a negative duration, selects every transaction.
    """

    state_filters: list[str] = array("string", distinct=True)
    producer_id_filters: list[int] = array("int64", distinct=True)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)


@struct
class ListedTransaction:
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@response_to(ListTransactionsRequest)
class ListTransactionsResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array("string")
    transaction_states: list[ListedTransaction] = array(ListedTransaction)
