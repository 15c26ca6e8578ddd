"""Answers of handlers as their clients read them, and refusals."""

from collections.abc import Generator
from contextlib import AbstractContextManager
from typing import TypeVar

import pytest

from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

R = TypeVar("R", bound=Message)


def as_read(answer: R | Generator[None, None, R], version: int) -> R:
    """The answer, of which parts may be encoded already, by way of the wire."""
    whole = at_once(answer) if isinstance(answer, Generator) else answer
    return type(whole).decode(whole.encode(version), version)


def refused(code: ErrorCode) -> AbstractContextManager[object]:
    return pytest.raises(KafkaError, check=lambda error: error.code is code)
