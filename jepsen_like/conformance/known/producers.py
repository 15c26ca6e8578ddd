"""Whether answers differ as intended: transactions, what is produced in them, and its readers."""

from collections.abc import Mapping
from typing import Any, Final

from pykraft.jepsen_like.conformance.answer_pairs import History, code_of, codes_of, places_of
from pykraft.jepsen_like.conformance.player import Answer
from pykraft.jepsen_like.conformance.producer_blanks import Batch
from pykraft.jepsen_like.conformance.script import Partition, Step
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.offsets import OffsetDeleteRequest, TxnOffsetCommitRequest
from pykraft.kafka_protocol.messages.records import DeleteRecordsRequest, FetchRequest, ProduceRequest
from pykraft.kafka_protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    WriteTxnMarkersRequest,
)
from pykraft.kafka_protocol.records import NO_PRODUCER_ID

_UNKNOWN: Final = -1
_SECOND_RULES_FROM: Final = 5
"""The first version of EndTxn by the rules of transaction.version 2."""
_DEFINITE: Final = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
)
_STABLE_OFFSETS: Final = ("offset", "last_stable_offset")
_VALID_OFFSETS: Final = frozenset({"high_watermark", "last_stable_offset", "log_start_offset"})


def part_of_a_producer(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    producers = _producers(earlier)
    names_a_part = any(
        one.gap is None or one.epoch_more < 0 or not {step.actor, one.owner} <= producers.keys()
        for one in _batches(step)
    )
    return names_a_part and {code for code, _ in codes_of(ours, kafka)} == {ErrorCode.INVALID_RECORD}


def later_sequence(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    if codes_of(ours, kafka) != {(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NONE)}:
        return False
    written: set[tuple[Any, Partition]] = set()
    for at, (other, answer) in enumerate(earlier):
        done = _produced(answer) if isinstance(other.request, ProduceRequest) else []
        written |= {place for place in _places(other, _producers(earlier[:at])) if place[1] in done}
    return any(place not in written for place in _places(step, _producers(earlier)))


def _producers(earlier: History) -> dict[int, Any]:
    """The producer id of each actor that has one."""
    found: dict[int, Any] = {}
    for step, answer in earlier:
        if not isinstance(step.request, InitProducerIdRequest | EndTxnRequest) or not isinstance(
            answer, dict
        ):
            continue
        if answer["error_code"] == ErrorCode.NONE and answer["producer_id"] != NO_PRODUCER_ID:
            found[step.actor] = answer["producer_id"]
    return found


def _places(step: Step, producers: Mapping[int, Any]) -> list[tuple[Any, Partition]]:
    """The producer id and the partition of each batch."""
    return [(producers.get(one.owner), (one.topic, one.partition)) for one in _batches(step)]


def beside_the_offset(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    return isinstance(step.request, ProduceRequest) and all(
        _last(path) in ("log_start_offset", "log_append_time_ms") and mine == _UNKNOWN
        for path, mine, _ in places_of(ours, kafka)
    )


def beside_the_records(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    return isinstance(step.request, FetchRequest) and _what_counts(ours) == _what_counts(kafka)


def _what_counts(answer: Answer) -> Any:
    """An answer to Fetch without what says nothing about records."""
    if not isinstance(answer, dict):
        return answer
    topics = [
        topic | {"partitions": [_of_partition(one) for one in topic["partitions"]]}
        for topic in answer["responses"]
    ]
    return answer | {"responses": topics}


def _of_partition(partition: Mapping[str, Any]) -> dict[str, Any]:
    last_offset = max((batch["last_offset"] for batch in partition["records"]), default=_UNKNOWN)
    aborted = [one for one in partition["aborted_transactions"] or () if one["first_offset"] <= last_offset]
    left_out = _VALID_OFFSETS if partition["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE else set()
    rest = {name: value for name, value in partition.items() if name not in left_out}
    return rest | {"aborted_transactions": aborted}


def deleted_beginning(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    deleted = any(isinstance(other.request, DeleteRecordsRequest) for other, _ in earlier)
    return deleted and all(
        _last(path) in _STABLE_OFFSETS and 0 <= theirs < mine for path, mine, theirs in places_of(ours, kafka)
    )


def negative_marker(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    if not isinstance(step.request, WriteTxnMarkersRequest) or not isinstance(kafka, dict):
        return False
    results = [
        part for marker in kafka["markers"] for topic in marker["topics"] for part in topic["partitions"]
    ]
    return ErrorCode.UNKNOWN_SERVER_ERROR in [part["error_code"] for part in results]


def stuck_transaction(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    refused = any(
        isinstance(other.request, WriteTxnMarkersRequest)
        and any(marker.coordinator_epoch > 0 for marker in other.request.markers)
        for other, _ in earlier
    )
    return refused and all(
        mine in _DEFINITE and theirs == ErrorCode.CONCURRENT_TRANSACTIONS
        for _, mine, theirs in places_of(ours, kafka)
    )


def all_partitions(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    return isinstance(step.request, DescribeTransactionsRequest) and all(
        _last(path) in ("topics", "partitions") and len(str(theirs)) < len(str(mine))
        for path, mine, theirs in places_of(ours, kafka)
    )


def trace_of_an_abort(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    committed = any(isinstance(other.request, TxnOffsetCommitRequest) for other, _ in earlier)
    unknown = (code_of(ours), code_of(kafka)) == (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE)
    return committed and isinstance(step.request, OffsetDeleteRequest) and unknown


def named_twice(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    return isinstance(step.request, AddPartitionsToTxnRequest) and ours == _once(kafka)


def retry_of_a_former_producer(earlier: History, step: Step, ours: Answer, kafka: Answer) -> bool:
    if not isinstance(step.request, EndTxnRequest) or step.version < _SECOND_RULES_FROM:
        return False
    by_first_rules = any(
        isinstance(other.request, EndTxnRequest)
        and other.version < _SECOND_RULES_FROM
        and code_of(answer) == ErrorCode.NONE
        for other, answer in earlier
    )
    taken_for_a_retry = (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE)
    return (
        by_first_rules and code_of(ours) == ErrorCode.PRODUCER_FENCED and code_of(kafka) in taken_for_a_retry
    )


def _once(value: Any) -> Any:
    """Without the elements of lists that are there already."""
    if isinstance(value, dict):
        return {name: _once(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_once(one) for at, one in enumerate(value) if one not in value[:at]]
    return value


def _batches(step: Step) -> list[Batch]:
    if not isinstance(step.request, ProduceRequest):
        return []
    sent: list[Any] = [part.records for topic in step.request.topic_data for part in topic.partition_data]
    return [records for records in sent if isinstance(records, Batch)]


def _produced(answer: Answer) -> list[Partition]:
    """Where a Produce that was answered so has written."""
    if not isinstance(answer, dict):
        return []
    return [
        (topic["name"] or topic["topic_id"], part["index"])
        for topic in answer["responses"]
        for part in topic["partition_responses"]
        if part["error_code"] == ErrorCode.NONE
    ]


def _last(path: str) -> str:
    return path.rpartition(".")[2]
