"""The client's errors, as types that a caller can tell apart.

All are :class:`~pykraft.kafka_protocol.errors.KafkaError`, so one ``except`` catches every error of the
cluster and of the network.
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid, uuid_to_str


class ConnectionFailedError(KafkaError):
    """The broker cannot be reached, or the connection broke; the request may have been carried out."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class MalformedAnswerError(KafkaError):
    """The broker sent bytes that are not the answer the protocol prescribes. Not retriable."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


class ClientTimeoutError(KafkaError):
    """The caller's timeout has passed; ``__cause__`` is the last error before that."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class UnsupportedByBrokerError(KafkaError):
    """The broker does not serve the API, or only in versions that cannot express the request."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class ProduceError(KafkaError):
    """A record was not acknowledged; ``code`` and message are those of the last refusal."""


class NotWrittenError(ProduceError):
    """The record is not in the log, and no request in flight can still append it."""


class MaybeWrittenError(ProduceError):
    """It is unknown whether the record is in the log; a request in flight may still append it."""


class CommitRefusedError(KafkaError):
    """None of the offsets was committed, and none will be."""


class CommitUnknownError(KafkaError):
    """Some of the offsets may be committed, now or even after a later commit."""


class DataLossError(KafkaError):
    """The requested records no longer exist."""


class OffsetOutOfRangeError(DataLossError):
    """The offset is outside the partition's log: its record expired, was deleted, or was truncated."""

    def __init__(self, topic: str, partition: int, offset: int, first: int, end: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic}-{partition}: offset {offset} is outside the log, which holds {first} up to {end}",
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.log_start_offset = first
        self.log_end_offset = end


class LogTruncatedError(DataLossError):
    """The log was truncated below the reader's position: records that it has read no longer exist."""

    def __init__(self, topic: str, partition: int, offset: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic}-{partition}: the log was truncated to offset {end_offset}, below the reader's {offset}",
        )
        self.topic = topic
        self.partition = partition
        self.end_offset = end_offset


class TopicRecreatedError(DataLossError):
    """A topic of this name exists, but it is not the topic that the reader started with."""

    def __init__(self, topic: str, expected: Uuid, found: Uuid) -> None:
        super().__init__(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"topic {topic} was deleted and created again: expected id {uuid_to_str(expected)}, "
            f"found {uuid_to_str(found)}",
        )
        self.topic = topic


class TopicDeletedError(DataLossError):
    """The topic or the partition does not exist, or no longer exists."""

    def __init__(self, topic: str, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        self.topic = topic


class TransactionError(KafkaError):
    """A transaction cannot go on."""


class AbortableError(TransactionError):
    """This transaction can only be aborted; the producer goes on after that."""


class FatalTransactionError(TransactionError):
    """The producer can do nothing any more but close."""


class FencedError(FatalTransactionError):
    """Another producer has taken over the transactional id, or the transaction took too long."""


class OutcomeUnknownError(TransactionError):
    """The coordinator did not answer in time whether the transaction is committed (or aborted). Ask again."""


def check(code: int, message: str | None, what: str) -> None:
    """Raise if ``code`` is an error."""
    if code:
        known = ErrorCode(code)
        raise KafkaError(known, message or f"{what}: {known.name}")
