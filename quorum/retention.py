"""How much of the metadata log is kept behind a snapshot (``metadata.max.retention.bytes`` and ``.ms``).

Pure. The log may start at the end of any snapshot of it, so a snapshot is chosen, and everything before it is
deleted, older snapshots too. The newest snapshot always stays (KIP-630).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pykraft.quorum.snapshots import SnapshotId, SnapshotInfo


def choose_log_start(
    infos: Sequence[SnapshotInfo],
    log_start_offset: int,
    log_bytes_from: Callable[[int], int],
    *,
    now_ms: int,
    max_bytes: int,
    max_ms: int,
) -> SnapshotId | None:
    """The snapshot at whose end the log should start now; None if it may stay as it is.

    ``infos``: oldest first. ``log_bytes_from(offset)``: size of the log if it starts there. ``max_bytes``
    counts log and snapshots together. ``max_ms``: what is older, by the time of the last batch in a snapshot,
    is deleted; -1 for no limit (both).
    """
    chosen: SnapshotId | None = None
    start_offset = log_start_offset
    for info in infos:
        end_offset = info.snapshot_id.end_offset
        if end_offset <= log_start_offset:
            continue
        kept_bytes = log_bytes_from(start_offset)
        kept_bytes += sum(i.size_bytes for i in infos if i.snapshot_id.end_offset >= start_offset)
        is_old = 0 <= max_ms < now_ms - info.last_contained_log_time_ms
        if not is_old and not 0 <= max_bytes < kept_bytes:
            break
        chosen, start_offset = info.snapshot_id, end_offset
    return chosen
