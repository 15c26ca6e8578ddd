"""What a reader asks for again, with a consumer that returns what a test tells it."""

from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, TopicPartition

from pykraft.jepsen_like.faults.clients.rereading import consume

NO_EPOCH = "No epoch found less or equal to offset 5 (leader epoch 1): broker end offset is -1"
TRUNCATED = "Partition log truncation detected at offset 5 (leader epoch 1): broker end offset is 3"


class Told:
    """A message, or an error at an offset."""

    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset, self._error = offset, error

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error


class Scripted:
    """``position`` is what has been read to; ``sought`` are the offsets that were asked for again."""

    def __init__(self, *messages: Told, position: int = OFFSET_INVALID) -> None:
        self._messages, self._position = messages, position
        self.sought: list[int] = []

    def consume(self, most: int, timeout_s: float) -> list[Told]:
        return list(self._messages)

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(place.topic, place.partition, self._position) for place in places]

    def seek(self, place: TopicPartition) -> None:
        self.sought.append(place.offset)


def read(consumer: Scripted) -> list[Any]:
    return [message.offset() for message in consume(cast(Consumer, consumer), 10, 0.1)]


@pytest.mark.parametrize("position", [OFFSET_INVALID, 5])
def test_position_is_read_again_of_which_the_broker_knows_nothing(position: int) -> None:
    consumer = Scripted(Told(5, KafkaError(KafkaError._AUTO_OFFSET_RESET, NO_EPOCH)), position=position)
    assert read(consumer) == []
    assert consumer.sought == [5]


def test_truncation_is_told() -> None:
    consumer = Scripted(Told(5, KafkaError(KafkaError._AUTO_OFFSET_RESET, TRUNCATED)), position=5)
    assert read(consumer) == [5]
    assert consumer.sought == []


def test_nothing_behind_an_unreadable_batch_is_returned() -> None:
    consumer = Scripted(Told(4), Told(5, KafkaError(KafkaError._BAD_MSG)), Told(9), position=4)
    assert read(consumer) == [4]
    assert consumer.sought == [5]
