"""``pykraft dump-log``, with the flags and lines of kafka-dump-log: the content of log, index and snapshot
files (of the metadata, and of producers), of checkpoints and of ``partition.metadata``.

Reads only; the node may be running. A file that ends in an incomplete batch is shown up to there, with a
message.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from pykraft.group_coordinator.codec import decode_record as decode_group_record
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.record_codec import Record, decode_batch
from pykraft.kafka_protocol.records import BatchHeader
from pykraft.log_store.dump import FoundBatch, Remainder, read_batches
from pykraft.log_store.interface import CorruptCheckpointError
from pykraft.log_store.producer_snapshot import NO_SEQUENCE, SNAPSHOT_SUFFIX, decode_snapshot
from pykraft.metadata_log.record_json import record_to_json, value_to_json
from pykraft.node.cli.common import json_option, print_json, wants_json
from pykraft.node.cli.dump_files import (
    TEXT_FILES,
    find_offset_mismatch,
    is_whole_transactions,
    read_transactions,
)
from pykraft.quorum.control_json import control_to_json
from pykraft.runtime.disk import Disk, DiskFile
from pykraft.runtime.os_disk import OsDisk

Decoder = Callable[[Record], dict[str, Any]]
_LOGS = (".log", ".checkpoint")


@click.command()
@click.option(
    "--files", required=True, metavar="FILE,…", help="Segments, indexes, snapshots or checkpoints to dump."
)
@click.option("--print-data-log", is_flag=True, help="Also print the records.")
@click.option(
    "--cluster-metadata-decoder", is_flag=True, help="Print the records of the metadata log, as JSON."
)
@click.option("--offsets-decoder", is_flag=True, help="Print the records of __consumer_offsets, as JSON.")
@click.option("--deep-iteration", is_flag=True, help="Also open the records, without printing their payload.")
@click.option("--max-bytes", type=click.IntRange(min=1), help="Read no more than so many bytes of batches.")
@click.option("--index-sanity-check", is_flag=True, help="Only whether a start would use an index.")
@click.option(
    "--verify-index-only", is_flag=True, help="Compare indexes with their log, without printing them."
)
@click.option("--skip-record-metadata", is_flag=True, help="Print only the payload of records.")
@json_option
def command(
    files: str,
    print_data_log: bool,
    cluster_metadata_decoder: bool,
    offsets_decoder: bool,
    deep_iteration: bool,
    max_bytes: int | None,
    index_sanity_check: bool,
    verify_index_only: bool,
    skip_record_metadata: bool,
) -> None:
    """Print the content of log, index and snapshot files. With --json: only one object per record."""
    if cluster_metadata_decoder and offsets_decoder:
        raise click.UsageError("give one of --cluster-metadata-decoder, --offsets-decoder")
    decoder = _decode_text
    if cluster_metadata_decoder:
        decoder = _decode_metadata
    elif offsets_decoder:
        decoder = _decode_group
    as_json = wants_json()
    deep = print_data_log or cluster_metadata_decoder or offsets_decoder or as_json
    printer = _Printer(
        decoder if deep else None,
        skip_record_metadata,
        as_json,
        opens_records=deep or deep_iteration,
        max_bytes=max_bytes,
        sanity_only=index_sanity_check,
        verify_only=verify_index_only,
    )
    disk = OsDisk()
    damaged = [path for path in files.split(",") if path and not _dump(disk, path, printer)]
    if damaged:
        raise click.ClickException(f"damaged: {', '.join(damaged)}")


class _Printer:
    """Formats batches and records; ``decoder`` None: batches only."""

    def __init__(
        self,
        decoder: Decoder | None,
        payload_only: bool,
        as_json: bool,
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
        self._payload_only = payload_only
        self._as_json = as_json

    def line(self, text: str) -> None:
        if not self._as_json:
            click.echo(text)

    def entry(self, values: Mapping[str, object]) -> None:
        """Print an entry of an index or a checkpoint."""
        if self._as_json:
            print_json(values)
        else:
            click.echo(" ".join(f"{name}: {value}" for name, value in values.items()))

    def batch(self, found: FoundBatch) -> bool:
        """Print it; False if it cannot be read."""
        self.line(_batch_line(found))
        if not self._opens_records or not found.is_valid:
            return found.is_valid
        try:
            records = decode_batch(found.data, found.header)
        except KafkaError as error:
            click.echo(f"the batch at position {found.position} cannot be opened: {error.message}", err=True)
            return False
        for record in records:
            if self._decoder is None:
                self.line(_record_line(record))
                continue
            payload = self._show(found.header, record)
            if self._as_json:
                print_json({"offset": record.offset, "timestamp": record.timestamp_ms, **payload})
            elif self._payload_only:
                print_json(payload)
            else:
                click.echo(f"{_record_line(record)} payload: {json.dumps(payload)}")
        return True

    def _show(self, header: BatchHeader, record: Record) -> dict[str, Any]:
        assert self._decoder is not None
        try:
            if header.is_control:
                return control_to_json(record.key, record.value)
            return self._decoder(record)
        except (ValueError, KafkaError) as error:
            return {"error": str(error), "hex": (record.value or b"").hex()}


def _dump(disk: Disk, path: str, printer: _Printer) -> bool:
    """Print one file; False if something in it is damaged."""
    try:
        file = disk.open(path, create=False)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    try:
        printer.line(f"Dumping {path}")
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
        if path.endswith(SNAPSHOT_SUFFIX):
            return _dump_producers(file, path, printer)
    finally:
        file.close()
    raise click.UsageError(
        f"{path}: expected a file that ends in .log, .checkpoint, .index, .timeindex, .txnindex or .snapshot,"
        f" or one of {', '.join(sorted(TEXT_FILES))}"
    )


def _dump_batches(file: DiskFile, path: str, printer: _Printer) -> bool:
    intact = True
    if path.endswith(".log"):
        printer.line(f"Log starting offset: {_base_offset(path)}")
    read_bytes = 0
    for found in read_batches(file):
        if printer.max_bytes is not None and read_bytes >= printer.max_bytes:
            break
        if isinstance(found, Remainder):
            click.echo(
                f"{found.size_bytes} bytes at position {found.position} are not a whole batch", err=True
            )
            return False
        read_bytes += found.header.size_bytes
        intact = printer.batch(found) and intact
    return intact


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
        printer.line(
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
        printer.line(f"{path} is empty.")
        return is_whole
    if printer.sanity_only:
        is_sane = is_whole and entries[0] <= entries[-1] and min(entries[-1]) >= 0
        if is_sane:
            printer.line(f"{path} passed sanity check.")
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


def _batch_line(found: FoundBatch) -> str:
    header = found.header
    time = "LogAppendTime" if header.is_log_append_time else "CreateTime"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count}"
        f" baseSequence: {header.base_sequence} lastSequence: {header.last_sequence}"
        f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
        f" partitionLeaderEpoch: {header.partition_leader_epoch}"
        f" isTransactional: {_flag(header.is_transactional)} isControl: {_flag(header.is_control)}"
        f" position: {found.position} {time}: {header.max_timestamp} size: {header.size_bytes}"
        f" magic: {header.magic} compresscodec: {_codec(header)} crc: {header.crc}"
        f" isvalid: {_flag(found.is_valid)}"
    )


def _record_line(record: Record) -> str:
    key_bytes = -1 if record.key is None else len(record.key)
    value_bytes = -1 if record.value is None else len(record.value)
    return (
        f"| offset: {record.offset} CreateTime: {record.timestamp_ms} keySize: {key_bytes}"
        f" valueSize: {value_bytes} headerKeys: [{','.join(name for name, _ in record.headers)}]"
    )


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _codec(header: BatchHeader) -> str:
    try:
        return Compression(header.compression).name.lower()
    except (ValueError, KafkaError):
        return "unknown"


def _decode_text(record: Record) -> dict[str, Any]:
    return {"key": _text(record.key), "value": _text(record.value)}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _decode_metadata(record: Record) -> dict[str, Any]:
    return record_to_json(record.value or b"")


def _decode_group(record: Record) -> dict[str, Any]:
    decoded = decode_group_record(record.key or b"", record.value)
    if decoded is None:
        return _decode_text(record)
    value = None if decoded.value is None else value_to_json(decoded.value)
    return {"type": type(decoded.key).__name__, "key": value_to_json(decoded.key), "value": value}
