"""Errors in the words of Kafka's Java tools, which scripts search for: texts of codes, and the classes of
exceptions where Kafka's output names them in JSON.
"""

from __future__ import annotations

from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

_PACKAGE: Final = "org.apache.kafka.common.errors."

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


def exception_class(code: ErrorCode) -> str:
    """``org.apache.kafka.common.errors.GroupIdNotFoundException``."""
    words = code.name.split("_")
    return _PACKAGE + (_CLASSES.get(code) or "".join(word.capitalize() for word in words) + "Exception")
