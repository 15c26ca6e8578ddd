"""What tests set of a record batch's header."""

from typing import TypedDict

from pykraft.kafka_protocol.compression import Compression


class ProducerFields(TypedDict):
    producer_id: int
    producer_epoch: int


class BatchFields(TypedDict, total=False):
    """The keywords of :func:`pykraft.kafka_protocol.record_codec.encode_batch`."""

    base_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    compression: Compression
    is_control: bool
    is_transactional: bool
