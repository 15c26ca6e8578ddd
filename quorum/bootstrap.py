"""The files that formatting writes into a controller's directory before the log exists.

The 0-0 checkpoint is the first voter set (KIP-853), where formatting names it: a snapshot of offset 0 and
epoch 0 in Kafka's format, a control batch with SnapshotHeader, KRaftVersion and Voters, and one with the
SnapshotFooter. It is never replicated and never sent to another replica. It decides who the voters are,
so any defect of the file stops the start.

The mark says that nothing was flushed here (:mod:`.flushed_mark`). It distinguishes a new directory from one
whose content is lost. (Kafka writes none and cannot distinguish the two.)
"""

from __future__ import annotations

from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.record_codec import Record, RecordInput, decode_batch, encode_batch
from pykraft.quorum import control_records as control
from pykraft.quorum.control_records import ControlType, control_record
from pykraft.quorum.core.voters import VoterSet
from pykraft.quorum.flushed_mark import FlushedMark, FlushedMarkFile
from pykraft.quorum.rpc import outline_batches
from pykraft.runtime.disk import Disk

BOOTSTRAP_CHECKPOINT = "00000000000000000000-0000000000.checkpoint"


class BootstrapError(Exception):
    """The bootstrap checkpoint cannot be read."""


def encode_bootstrap(voters: VoterSet, now_ms: int) -> bytes:
    """``now_ms``: time of day, stamped on the records."""
    head: list[RecordInput] = [
        control_record(ControlType.SNAPSHOT_HEADER, control.snapshot_header(0), now_ms),
        control_record(ControlType.KRAFT_VERSION, control.kraft_version(), now_ms),
        control_record(ControlType.KRAFT_VOTERS, control.voters_record(voters), now_ms),
    ]
    foot = [control_record(ControlType.SNAPSHOT_FOOTER, control.snapshot_footer(), now_ms)]
    return encode_batch(head, base_offset=0, leader_epoch=0, is_control=True) + encode_batch(
        foot, base_offset=len(head), leader_epoch=0, is_control=True
    )


def decode_bootstrap(data: bytes) -> VoterSet:
    """:class:`ValueError` unless the whole snapshot is there, from header to footer, with one voter set."""
    records: list[Record] = []
    position = 0
    for header in outline_batches(data):
        if not header.is_control:
            raise ValueError(f"the batch at offset {header.base_offset} is not a control batch")
        try:
            records += decode_batch(data[position : position + header.size_bytes], header)
        except KafkaError as error:
            raise ValueError(str(error)) from None
        position += header.size_bytes
    kinds = [control.control_type(record.key) for record in records]
    if not kinds or kinds[0] != ControlType.SNAPSHOT_HEADER or kinds[-1] != ControlType.SNAPSHOT_FOOTER:
        raise ValueError("it does not run from a snapshot header to a snapshot footer")
    found = [r.value for r, kind in zip(records, kinds, strict=True) if kind == ControlType.KRAFT_VOTERS]
    if len(found) != 1 or found[0] is None:
        raise ValueError(f"it holds {len(found)} voter sets")
    return control.parse_voters_record(found[0])


def format_log(
    disk: Disk, directory: str, now_ms: int, voters: VoterSet | None = None, *, may_vote: bool = True
) -> None:
    """Prepare ``directory`` (``…/__cluster_metadata-0``), durable on return.

    ``voters``: the first ones, None if formatting does not name them. ``may_vote``: now or later. An existing
    log keeps its mark, or stays without one, so that it is not truncated.
    """
    disk.make_dirs(directory)
    if voters is not None:
        write_bootstrap_voters(disk, directory, voters, now_ms)
    # A crash may have left unfinished files of an earlier attempt.
    held = [name for name in disk.list(directory) if not name.endswith(".tmp")]
    if may_vote and set(held) <= {BOOTSTRAP_CHECKPOINT}:
        FlushedMarkFile(disk, directory).write(FlushedMark(0))


def write_bootstrap_voters(disk: Disk, directory: str, voters: VoterSet, now_ms: int) -> None:
    """Write the checkpoint into ``directory`` (``…/__cluster_metadata-0``), durable on return."""
    disk.make_dirs(directory)
    disk.write_atomic(f"{directory}/{BOOTSTRAP_CHECKPOINT}", encode_bootstrap(voters, now_ms))


def read_bootstrap_voters(disk: Disk, directory: str) -> VoterSet | None:
    """The voter set in ``directory``, or None without a checkpoint. :class:`BootstrapError` if damaged."""
    path = f"{directory}/{BOOTSTRAP_CHECKPOINT}"
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return None
    try:
        return decode_bootstrap(data)
    except ValueError as error:
        raise BootstrapError(f"{path} is not a bootstrap checkpoint: {error}") from error
