"""``pykraft dump-log``, with the flags and lines of kafka-dump-log: the content of log, index and snapshot
files (of the metadata, and of producers), of checkpoints and of ``partition.metadata``.

Reads only; the node may be running. A file that ends in an incomplete batch is shown up to there, with a
message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import click

from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.markers import read_marker
from pykraft.kafka_protocol.record_codec import Record, decode_batch
from pykraft.log_store.dump import FoundBatch, Remainder, read_batches
from pykraft.log_store.interface import CorruptCheckpointError
from pykraft.log_store.producer_snapshot import NO_SEQUENCE, SNAPSHOT_SUFFIX, decode_snapshot
from pykraft.metadata_log.bootstrap import FILE_NAME as BOOTSTRAP_CHECKPOINT
from pykraft.node.cli.files.dump_files import (
    TEXT_FILES,
    find_offset_mismatch,
    is_whole_transactions,
    read_transactions,
)
from pykraft.node.cli.files.dump_records import (
    Decoder,
    batch_line,
    decode,
    decode_group,
    decode_metadata,
    decode_text,
    decode_transaction,
    record_line,
)
from pykraft.node.cli.shared.client_properties import refused_option
from pykraft.node.cli.shared.common import json_option, print_json, say, version_option, wants_json
from pykraft.node.cli.shared.tool_errors import report
from pykraft.runtime.disk import Disk, DiskFile
from pykraft.runtime.os_disk import OsDisk

_LOGS: Final = (".log", ".checkpoint")
_SUFFIXES: Final = (*_LOGS, ".index", ".timeindex", ".txnindex", SNAPSHOT_SUFFIX)


@click.command()
@click.option(
    "--files", required=True, metavar="FILE,…", help="Segments, indexes, snapshots or checkpoints to dump."
)
@click.option("--print-data-log", is_flag=True, help="Also print the records.")
@click.option(
    "--cluster-metadata-decoder", is_flag=True, help="Print the records of the metadata log, as JSON."
)
@click.option("--offsets-decoder", is_flag=True, help="Print the records of __consumer_offsets, as JSON.")
@click.option(
    "--transaction-log-decoder", is_flag=True, help="Print the records of __transaction_state, as JSON."
)
@click.option("--deep-iteration", is_flag=True, help="Also open the records, without printing their payload.")
@click.option("--max-bytes", type=click.IntRange(min=1), help="Read no more than so many bytes of batches.")
@click.option("--index-sanity-check", is_flag=True, help="Only whether a start would use an index.")
@click.option(
    "--verify-index-only", is_flag=True, help="Compare indexes with their log, without printing them."
)
@click.option("--skip-record-metadata", is_flag=True, help="Print only the payload of records.")
@click.option("--max-message-size", type=click.IntRange(min=1), hidden=True, expose_value=False,
              help="Has no effect: a batch may be of any size.")  # fmt: skip
@refused_option("--remote-log-metadata-decoder", "there is no tiered storage", is_flag=True)
@refused_option("--share-group-state-decoder", "there are no share groups", is_flag=True)
@refused_option("--key-decoder-class", "it would be a class of Java")
@refused_option("--value-decoder-class", "it would be a class of Java")
@json_option
@version_option()
def command(
    files: str,
    print_data_log: bool,
    cluster_metadata_decoder: bool,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
    deep_iteration: bool,
    max_bytes: int | None,
    index_sanity_check: bool,
    verify_index_only: bool,
    skip_record_metadata: bool,
) -> None:
    """Print the content of log, index and snapshot files. With --json: only one object per record."""
    chosen = {
        decode_metadata: cluster_metadata_decoder,
        decode_group: offsets_decoder,
        decode_transaction: transaction_log_decoder,
    }
    decoders: list[Decoder] = [decoder for decoder, is_chosen in chosen.items() if is_chosen]
    if len(decoders) > 1:
        raise click.UsageError(
            "give one of --cluster-metadata-decoder, --offsets-decoder, --transaction-log-decoder"
        )
    with_content = print_data_log or bool(decoders) or wants_json()
    printer = _Printer(
        (decoders or [decode_text])[0] if with_content else None,
        skip_record_metadata,
        opens_records=with_content or deep_iteration,
        max_bytes=max_bytes,
        sanity_only=index_sanity_check,
        verify_only=verify_index_only,
    )
    disk = OsDisk(read_only=True)
    damaged = [path for path in files.split(",") if path and not _dump(disk, path, printer)]
    if damaged:
        raise click.ClickException(f"damaged: {', '.join(damaged)}")


class _Printer:
    """Prints batches and records; ``decoder`` None: without the content of records."""

    def __init__(
        self,
        decoder: Decoder | None,
        content_only: bool,
        *,
        opens_records: bool,
        max_bytes: int | None,
        sanity_only: bool,
        verify_only: bool,
    ) -> None:
        self.max_bytes = max_bytes
        self.sanity_only = sanity_only
        self.verify_only = verify_only
        self._opens_records = opens_records
        self._decoder = decoder
        self._content_only = content_only

    def entry(self, values: Mapping[str, object]) -> None:
        """Print an entry of an index or a checkpoint."""
        if wants_json():
            print_json(values)
        else:
            click.echo(" ".join(f"{name}: {value}" for name, value in values.items()))

    def batch(self, found: FoundBatch) -> bool:
        """Print it; False if it cannot be read."""
        say(batch_line(found))
        if not self._opens_records or not found.is_valid:
            return found.is_valid
        try:
            records = decode_batch(found.data, found.header)
        except KafkaError as error:
            click.echo(f"the batch at position {found.position} cannot be opened: {error.message}", err=True)
            return False
        for record in records:
            self._record(found, record)
        return True

    def _record(self, found: FoundBatch, record: Record) -> None:
        header = found.header
        decoded = None if self._decoder is None else decode(self._decoder, header, record)
        if wants_json():
            assert decoded is not None, "records are opened to be shown"
            print_json({"offset": record.offset, "timestamp": record.timestamp_ms, **decoded.as_object})
            return
        marker = read_marker(header, found.data) if header.is_control else None
        parts = [] if self._content_only else [record_line(header, record, marker)]
        if decoded is not None and not header.is_control:
            parts += ["|"] if self._content_only else []
            parts += [str(decoded)] if str(decoded) else []
        click.echo(" ".join(parts))


def _dump(disk: Disk, path: str, printer: _Printer) -> bool:
    """Print one file; False if something in it is damaged."""
    say(f"Dumping {path}")
    if not path.endswith(_SUFFIXES) and path.rpartition("/")[2] not in TEXT_FILES:
        known = f"one that ends in {', '.join(_SUFFIXES)}, or {', '.join(sorted(TEXT_FILES))}"
        report([f"Ignoring unknown file {path}: expected {known}"])
        return True
    try:
        file = disk.open(path, create=False)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    try:
        if path.endswith(_LOGS):
            return _dump_batches(file, path, printer)
        if path.endswith((".index", ".timeindex")):
            return _dump_index(disk, file, path, printer)
        if path.endswith(".txnindex"):
            data = file.pread(0, file.size())
            for entry in read_transactions(data):
                printer.entry(entry)
            return is_whole_transactions(data)
        read = TEXT_FILES.get(path.rpartition("/")[2])
        if read is not None:
            return _dump_text(disk, path, read, printer)
        return _dump_producers(file, path, printer)
    finally:
        file.close()


def _dump_batches(file: DiskFile, path: str, printer: _Printer) -> bool:
    intact = True
    say(_headline(path))
    left_bytes = printer.max_bytes
    for found in read_batches(file):
        if isinstance(found, Remainder):
            click.echo(
                f"{found.size_bytes} bytes at position {found.position} are not a whole batch", err=True
            )
            return False
        if left_bytes is not None:
            left_bytes -= found.header.size_bytes
            if left_bytes < 0:
                break
        intact = printer.batch(found) and intact
    return intact


def _headline(path: str) -> str:
    name = path.rpartition("/")[2]
    if name == BOOTSTRAP_CHECKPOINT:
        return "KRaft bootstrap snapshot"
    if name.endswith(".log"):
        return f"Log starting offset: {_base_offset(path)}"
    end_offset, _, epoch = name.removesuffix(".checkpoint").partition("-")
    if not (end_offset.isdecimal() and epoch.isdecimal()):
        raise click.UsageError(f"{path}: the name of a snapshot is its end offset and its epoch")
    return f"Snapshot end offset: {int(end_offset)}, epoch: {int(epoch)}"


def _dump_producers(file: DiskFile, path: str, printer: _Printer) -> bool:
    try:
        entries = decode_snapshot(file.pread(0, file.size()), path)
    except CorruptCheckpointError as error:
        click.echo(str(error), err=True)
        return False
    for entry in entries:
        first = entry.current_transaction_first_offset
        transaction = "OptionalLong.empty" if first < 0 else f"OptionalLong[{first}]"
        batch = ""
        if entry.last_sequence != NO_SEQUENCE:
            batch = (
                f" firstSequence: {entry.first_sequence} lastSequence: {entry.last_sequence}"
                f" lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta}"
                f" timestamp: {entry.timestamp_ms}"
            )
        say(
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch}"
            f" coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {transaction}"
            f" lastTimestamp: {entry.timestamp_ms}{batch}"
        )
    return True


def _dump_text(
    disk: Disk, path: str, read: Callable[[Disk, str], Iterator[dict[str, object]]], printer: _Printer
) -> bool:
    try:
        for entry in read(disk, path):
            printer.entry(entry)
    except CorruptCheckpointError as error:
        click.echo(str(error), err=True)
        return False
    return True


def _dump_index(disk: Disk, file: DiskFile, path: str, printer: _Printer) -> bool:
    """Entries up to the zeros that fill a preallocated index, compared with the batches they lead to."""
    base_offset = _base_offset(path)
    is_offsets = path.endswith(".index")
    layout = struct.Struct(">ii" if is_offsets else ">qi")
    data = file.pread(0, file.size())
    is_whole = len(data) % layout.size == 0
    entries = list(_entries(layout, data))
    if not entries:
        say(f"{path} is empty.")
        return is_whole
    if printer.sanity_only:
        is_sane = is_whole and entries[0] <= entries[-1] and min(entries[-1]) >= 0
        if is_sane:
            say(f"{path} passed sanity check.")
        return is_sane
    mismatches = []
    log_path = f"{path.rpartition('.')[0]}.log"
    log = disk.open(log_path, create=False) if is_offsets and disk.exists(log_path) else None
    for first, second in entries:
        if is_offsets:
            entry = {"offset": first + base_offset, "position": second}
            found = None if log is None else find_offset_mismatch(log, first + base_offset, second)
            if found is not None:
                mismatches.append(f"  Index offset: {first + base_offset}, log offset: {found}")
        else:
            entry = {"timestamp": first, "offset": second + base_offset}
        if not printer.verify_only:
            printer.entry(entry)
    if log is not None:
        log.close()
    if mismatches:
        click.echo("\n".join([f"Mismatches in :{path}", *mismatches]), err=True)
    return is_whole and not mismatches


def _entries(layout: struct.Struct, data: bytes) -> Iterator[tuple[int, int]]:
    for position in range(0, len(data) - layout.size + 1, layout.size):
        first, second = layout.unpack_from(data, position)
        if position and not (first or second):
            return
        yield first, second


def _base_offset(path: str) -> int:
    name = path.rsplit("/", 1)[-1].split(".", 1)[0]
    if not name.isdecimal():
        raise click.UsageError(f"{path}: the name of a segment file is the offset it starts at")
    return int(name)
