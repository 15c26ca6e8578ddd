"""Tell from an error of pykraft's own client whether an operation was certainly refused."""

from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Final

from pykraft.jepsen_like.faults.clients.interface import RefusedError, UnknownOutcomeError
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

NOT_SENT: Final = frozenset(ErrorCode)
"""Whatever the error is, the request was not sent."""


@contextmanager
def answered(refused: Container[ErrorCode] = ()) -> Iterator[None]:
    """Raise the client's errors as a workload's; ``refused`` are certain refusals of this operation."""
    try:
        yield
    except KafkaError as error:
        raise outcome(error, refused) from error


def outcome(error: KafkaError, refused: Container[ErrorCode] = ()) -> RefusedError | UnknownOutcomeError:
    return (RefusedError if error.code in refused else UnknownOutcomeError)(text(error))


def text(error: KafkaError) -> str:
    return f"{error.code.name}: {error.message}"
