"""Reads again what fails its CRC, until the broker has found the damage and sends what was written.

librdkafka reports such a batch, and goes on behind it at an offset that it makes up. It also takes for a
truncation what is none: the answer of a broker that does not know the reader's epoch yet, because it was
paused and does not know that it was deposed. Kafka's own client asks again.
"""

import contextlib
from typing import Final

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

UNREADABLE: Final = frozenset(
    {KafkaError._BAD_MSG, KafkaError._NOT_IMPLEMENTED, KafkaError._BAD_COMPRESSION, KafkaError._UNDERFLOW}
)
KNOWS_NO_EPOCH: Final = "broker end offset is -1"


def consume(consumer: Consumer, most: int, timeout_s: float) -> list[Message]:
    """As ``consumer.consume``, which must check CRCs. Of a partition with an unreadable batch nothing behind
    it is returned, and the next call reads that batch again, as it does at a position of which the broker
    knows nothing."""
    returned: list[Message] = []
    next_offsets: dict[tuple[str, int], int] = {}
    unreadable: dict[tuple[str, int], int] = {}
    for message in consumer.consume(most, timeout_s):
        place = (str(message.topic()), message.partition() or 0)
        error, offset = message.error(), message.offset() or 0
        if error is not None and _is_to_be_read_again(error):
            unreadable.setdefault(place, offset)
        elif place not in unreadable:
            returned.append(message)
            if error is None:
                next_offsets[place] = offset + 1
    for (topic, partition), batch_offset in unreadable.items():
        (reached,) = consumer.position([TopicPartition(topic, partition)])
        before = batch_offset if reached.offset == OFFSET_INVALID else reached.offset
        offset = next_offsets.get((topic, partition), before)
        _go_back(consumer, TopicPartition(topic, partition, offset))
    return returned


def _is_to_be_read_again(error: KafkaError) -> bool:
    knows_no_epoch = error.code() == KafkaError._AUTO_OFFSET_RESET and KNOWS_NO_EPOCH in error.str()
    return knows_no_epoch or error.code() in UNREADABLE


def _go_back(consumer: Consumer, place: TopicPartition) -> None:
    """A partition of which the made-up offset was refused cannot be sought in; it is assigned once more."""
    try:
        consumer.seek(place)
    except KafkaException:
        with contextlib.suppress(KafkaException):  # a rebalance has taken it away
            consumer.incremental_unassign([place])
            consumer.incremental_assign([place])
