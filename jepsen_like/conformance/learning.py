"""An actor learns from answers: its ids and epochs, its partitions, its sequences."""

from collections.abc import Mapping
from typing import Any

from pykraft.jepsen_like.conformance.script import Actor, Partition
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.groups import ConsumerGroupHeartbeatResponse, JoinGroupResponse
from pykraft.kafka_protocol.messages.records import ProduceResponse
from pykraft.kafka_protocol.messages.transactions import EndTxnResponse, InitProducerIdResponse


def learn(actor: Actor, answer: Message, topics: Mapping[Uuid, str], names: Mapping[str, str]) -> None:
    """``topics`` and ``names``: the script's name of each topic id and name of this run."""
    match answer:
        case JoinGroupResponse(error_code=ErrorCode.NONE | ErrorCode.MEMBER_ID_REQUIRED):
            actor.learn_id(answer.member_id)
            if answer.error_code == ErrorCode.NONE:
                actor.epoch = answer.generation_id
        case ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NONE):
            actor.learn_id(answer.member_id or "")
            actor.epoch = answer.member_epoch
            if answer.assignment is not None:
                actor.assigned = _partitions(answer.assignment.topic_partitions, topics)
        case InitProducerIdResponse(error_code=ErrorCode.NONE):
            actor.producer.learn(answer.producer_id, answer.producer_epoch)
        case EndTxnResponse(error_code=ErrorCode.NONE) if answer.producer_id >= 0:
            actor.producer.learn(answer.producer_id, answer.producer_epoch)
        case ProduceResponse():
            for place in _produced(answer, topics, names):
                if place in actor.producer.sent:
                    actor.producer.next_sequences[place] = actor.producer.sent[place]


def _partitions(assigned: list[Any], topics: Mapping[Uuid, str]) -> tuple[Partition, ...]:
    return tuple(
        sorted((topics.get(topic.topic_id, "?"), index) for topic in assigned for index in topic.partitions)
    )


def _produced(
    answer: ProduceResponse, topics: Mapping[Uuid, str], names: Mapping[str, str]
) -> list[Partition]:
    return [
        (names.get(topic.name) or topics.get(Uuid(topic.topic_id), "?"), partition.index)
        for topic in answer.responses
        for partition in topic.partition_responses
        if partition.error_code == ErrorCode.NONE
    ]
