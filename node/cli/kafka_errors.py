"""Errors in the words of Kafka's Java tools, which scripts search for: exception classes, texts of codes."""

from __future__ import annotations

from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

_PACKAGE: Final = "org.apache.kafka.common.errors."
_WRAPPER: Final = "java.util.concurrent.ExecutionException: "

_CLASSES: Final = {
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "UnknownTopicOrPartitionException",
}
"""Those that are not named like their code."""

_TEXTS: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Deleting offsets of a topic is forbidden while the consumer group is "
    "actively subscribed to it.",
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
}


def text_of(error: KafkaError) -> str:
    """The text that Kafka has for the code; the error's own where Kafka's is not known here."""
    return _TEXTS.get(error.code, error.message)


def as_exception(error: KafkaError, text: str | None = None) -> str:
    """``org.apache.kafka.common.errors.GroupIdNotFoundException: …``."""
    words = error.code.name.split("_")
    name = _CLASSES.get(error.code) or "".join(word.capitalize() for word in words) + "Exception"
    return f"{_PACKAGE}{name}: {text or text_of(error)}"


def as_wrapped_exception(error: KafkaError) -> str:
    """As the tools show the error of a request that they make in the middle of something."""
    return _WRAPPER + as_exception(error)
