"""Answers of handlers as their clients read them."""

from collections.abc import Generator
from typing import TypeVar

from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.codec.schema import Message

R = TypeVar("R", bound=Message)


def as_read(answer: R | Generator[None, None, R], version: int) -> R:
    """The answer, of which parts may be encoded already, by way of the wire."""
    whole = at_once(answer) if isinstance(answer, Generator) else answer
    return type(whole).decode(whole.encode(version), version)
