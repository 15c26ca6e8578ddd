"""Record sets as plain values: what each batch says, without what its bytes are made of."""

from typing import Any

from pykraft.kafka_protocol.markers import ABORT, COMMIT, read_marker
from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.kafka_protocol.records import iter_headers

_MARKERS = {ABORT: "abort", COMMIT: "commit"}


def told(data: bytes | memoryview | None) -> list[dict[str, Any]]:
    """The whole batches of ``data``; what is cut off at its end is left out."""
    if not data:
        return []
    return [
        {
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "leader_epoch": header.partition_leader_epoch,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "transactional": header.is_transactional,
            "timestamp": header.max_timestamp,
            "content": _content(bytes(data[at : at + header.size_bytes]), header),
        }
        for at, header in iter_headers(data)
        if at + header.size_bytes <= len(data)
    ]


def _content(batch: bytes, header: Any) -> str:
    if header.is_control:
        marker = read_marker(header, batch)
        if marker is None:
            return "no marker"
        return f"{_MARKERS.get(marker.kind, 'other')} by coordinator epoch {marker.coordinator_epoch}"
    return ",".join(f"{record.offset}={record.value!r}" for record in decode_batch(batch, header))
