"""Which batches of a fetch hold records for the application: no control batches, no aborted transactions.

The answer to a read_committed fetch names the producers with aborted transactions in it, and from which
offset; each transaction ends at that producer's abort marker. The list is complete for its answer, so nothing
is carried from one answer to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.kafka_protocol.records import BatchHeader

_ABORT_MARKER = 0


def visible_batches(
    data: memoryview, headers: Iterable[tuple[int, BatchHeader]], aborted: Sequence[tuple[int, int]] = ()
) -> list[tuple[int, BatchHeader]]:
    """The (position, header) pairs to show. ``aborted``: (producer id, first offset)."""
    waiting = sorted((first_offset, producer_id) for producer_id, first_offset in aborted)
    aborting: set[int] = set()
    shown = []
    for position, header in headers:
        while waiting and waiting[0][0] <= header.last_offset:
            aborting.add(waiting.pop(0)[1])
        if header.is_control:
            if header.producer_id in aborting and _is_abort(data, position, header):
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            shown.append((position, header))
    return shown


def _is_abort(data: memoryview, position: int, header: BatchHeader) -> bool:
    """A marker's key is a version and a type, two bytes each. Compaction may have left the batch empty."""
    markers = decode_batch(data[position : position + header.size_bytes], header)
    key = markers[0].key if markers else None
    return key is not None and int.from_bytes(key[2:4], "big") == _ABORT_MARKER
