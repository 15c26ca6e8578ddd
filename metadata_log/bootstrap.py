"""``bootstrap.checkpoint``: the feature levels a new cluster starts with, written by formatting.

The first active controller of a cluster writes them into the log; after that the file is not read again. It
holds a record batch like any other of the metadata log, so the same code reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykraft.kafka_protocol.record_codec import RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.records import crc_is_valid, read_header
from pykraft.metadata_log.codec import decode_record, encode_record
from pykraft.metadata_log.records import FeatureLevelRecord
from pykraft.runtime.disk import Disk

FILE_NAME = "bootstrap.checkpoint"


def write_bootstrap_checkpoint(disk: Disk, directory: str, features: Mapping[str, int]) -> None:
    """Write the file atomically into the metadata log directory's parent."""
    records = [
        RecordInput(key=None, value=encode_record(FeatureLevelRecord(name, level)), timestamp_ms=0)
        for name, level in sorted(features.items())
    ]
    disk.write_atomic(f"{directory}/{FILE_NAME}", encode_batch(records, leader_epoch=0))


def read_bootstrap_checkpoint(disk: Disk, directory: str) -> dict[str, int]:
    """The features in the file. Raises :class:`ValueError` that names the file if it is damaged."""
    path = f"{directory}/{FILE_NAME}"
    data = disk.read(path)
    try:
        header = read_header(data)
        whole = header.size_bytes == len(data) and crc_is_valid(data, 0, header)
    except ValueError:
        whole = False
    if not whole:
        raise ValueError(f"{path} is damaged: its record batch is incomplete")
    features = {}
    for record in decode_batch(data, header):
        decoded = decode_record(record.value or b"")
        if not isinstance(decoded, FeatureLevelRecord):
            raise ValueError(f"{path} holds a {type(decoded).__name__}; only feature levels are expected")
        features[decoded.name] = decoded.feature_level
    return features
