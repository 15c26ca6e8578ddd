"""One replica whose producers write in transactions, through rolls, truncations and restarts of every kind.

The world knows nothing but the log: what the replica derives from it on its way (producers, open
transactions, last stable offset, transaction indexes) is compared with what one walk over all batches gives.
"""

from collections import Counter
from random import Random
from typing import NamedTuple

from pykraft.broker.logs.log_config import build_log_config
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.jepsen_like.simulation.cluster.checks.derived_checks import find_difference
from pykraft.kafka_client.visible import visible_batches
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.markers import ABORT, COMMIT, EndOfTransaction, Marker
from pykraft.kafka_protocol.record_codec import RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.records import BatchHeader, iter_headers, read_header
from pykraft.log_store.indexes.transaction_index import AbortedTransaction
from pykraft.log_store.log.log import Log
from pykraft.metadata_log.image import PartitionRegistration
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.at_once import AtOnce, Logs, now
from tests.broker.crash import abandon
from tests.narrowing import present
from tests.unexpected import unexpected

KEY = ("t", 0)
TOPIC_ID = Uuid(b"t" * 16)
CONFIG = build_log_config({}, {"segment.bytes": "1048576", "index.interval.bytes": "150"})
PRODUCERS = range(10, 15)


class Seen(NamedTuple):
    """What one walk over a log gives. ``visible``: the offsets of records that are not in a transaction, or
    in a committed one. ``first_offsets``: of the open transactions; ``ended``: (first offset, marker).
    """

    entries: dict[int, tuple[int, list[tuple[int, int, int]], int, int, int]]
    first_offsets: dict[int, int]
    ended: list[tuple[int, int]]
    aborted: list[AbortedTransaction]
    visible: set[int]

    def last_stable_offset(self, high_watermark: int) -> int:
        undecided = [*self.first_offsets.values()]
        undecided += [first for first, marker in self.ended if marker >= high_watermark]
        return min([high_watermark, *undecided])


def see(log: Log) -> Seen:
    """Everything from the bytes of the log."""
    entries: dict[int, tuple[int, list[tuple[int, int, int]], int, int, int]] = {}
    open_offsets: dict[int, list[int]] = {}
    ended, aborted, visible = [], [], set()
    for header, batch in log.iter_batches(0):
        offsets = [record.offset for record in decode_batch(batch, header)]
        id = header.producer_id
        if id < 0:
            visible.update(offsets)
            continue
        epoch, batches, coordinator, _, _ = entries.get(id, (-1, [], -1, -1, -1))
        batches = list(batches) if epoch == header.producer_epoch else []
        if header.is_control:
            key, value = decode_batch(batch, header)[0][2:4]
            assert key is not None and value is not None
            coordinator = int.from_bytes(value[2:], "big")
            data = open_offsets.pop(id, [])
            if data:
                ended.append((data[0], header.base_offset))
            if int.from_bytes(key[2:], "big") == COMMIT:
                visible.update(data)
            elif data:
                others = [mine[0] for mine in open_offsets.values()]
                stable = min([header.next_offset, *others])
                aborted.append(AbortedTransaction(id, data[0], header.base_offset, stable))
        else:
            batches.append((header.base_sequence, header.last_sequence, header.base_offset))
            if header.is_transactional:
                open_offsets.setdefault(id, []).extend(offsets)
            else:
                visible.update(offsets)
        first = open_offsets.get(id, [-1])[0]
        entries[id] = header.producer_epoch, batches[-5:], coordinator, first, header.max_timestamp
    return Seen(entries, {id: data[0] for id, data in open_offsets.items()}, ended, aborted, visible)


class World:
    """Replica 1 of a partition; replica 2 exists only as the offset it has acknowledged."""

    def __init__(self, seed: int, segment_bytes: int = 900) -> None:
        self.rng = Random(seed)
        self.disk = MemoryDisk()
        self.config = build_log_config({}, {})
        object.__setattr__(self.config, "internal_segment_bytes", segment_bytes)
        object.__setattr__(self.config, "index_interval_bytes", 150)
        self.leader_epoch = -1
        self.coordinator_epoch = 3
        self.time_ms = 1_000
        self.counts: Counter[str] = Counter()
        self.rebuilds = True
        self.start()

    def start(self) -> None:
        self.logs = Logs(self.disk, ("/d",), self.config, SystemClock(), AtOnce(), unexpected, self._damage)
        now(self.logs.start())
        (opened,) = now(self.logs.open_or_create([(*KEY, TOPIC_ID, self.config)]))
        self.partition = Partition(
            *("t", TOPIC_ID, 0, 1),
            opened.log,
            self,
            producers=opened.producers,
            high_watermark=opened.high_watermark,
        )
        self.lead()

    def _damage(self, key: tuple[str, int]) -> None:
        raise AssertionError(f"{key} is damaged")

    @property
    def log(self) -> Log:
        return self.partition.log

    # -- the events of the partition -------------------------------------------------------------------

    def log_grew(self, partition: Partition) -> None: ...
    def high_watermark_moved(self, partition: Partition) -> None: ...
    def state_changed(self, partition: Partition) -> None: ...
    def log_start_moved(self, partition: Partition) -> None: ...

    def producers_lost(self, partition: Partition) -> None:
        self.counts["rebuilt"] += 1
        if self.rebuilds and self.rng.random() < 0.5:
            now(self.logs.producers.rebuild(KEY, partition.high_watermark))

    def storage_failed(self, partition: Partition, error: Exception) -> None:
        raise error

    def replication_failed(self, partition: Partition, error: Exception) -> None:
        raise error

    # -- roles -----------------------------------------------------------------------------------------

    def apply(self, leader: int) -> None:
        self.leader_epoch = max(self.leader_epoch, self.log.latest_epoch) + 1
        registration = PartitionRegistration((1, 2), (1, 2), leader, self.leader_epoch, self.leader_epoch)
        self.partition.apply(registration, 0)

    def lead(self) -> None:
        self.apply(1)

    def acknowledge(self) -> None:
        """The follower has fetched some more."""
        log = self.log
        least = max(log.log_start_offset, self.partition.followers[2].log_end_offset)
        ends = [header.next_offset for header in log.iter_headers(least)] if least >= 0 else []
        if ends:
            self.partition.handle_follower_fetch(2, self.rng.choice(ends), 1, 0, 0)

    def cut(self) -> None:
        """Another replica leads, and its log ends earlier."""
        self.apply(2)
        end = self.log.log_end_offset
        least = self.partition.high_watermark if self.rng.random() < 0.8 else self.log.log_start_offset
        bases = [header.base_offset for header in self.log.iter_headers(least)]
        self.partition.truncate_to(self.rng.choice([*bases, end]))
        self.counts["cut"] += self.log.log_end_offset < end
        self.lead()

    # -- producers -------------------------------------------------------------------------------------

    def header(self, id: int, *, is_transactional: bool, epoch: int | None = None) -> memoryview:
        entry = self.partition.producers.entry(id)
        known = -1 if entry is None else entry.epoch
        epoch = max(known, 0) if epoch is None else epoch
        sequence = 0
        if entry is not None and entry.batches and entry.epoch == epoch:
            sequence = entry.batches[-1].last_sequence + 1
        self.time_ms += self.rng.randrange(3)
        records = [RecordInput(None, b"v" * 20, (), self.time_ms)] * self.rng.randint(1, 3)
        data = encode_batch(
            records,
            producer_id=id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        return memoryview(bytearray(data))

    def produce(self, id: int, *, is_transactional: bool = True, epoch: int | None = None) -> None:
        """A batch of a transaction that the coordinator knows, or of none."""
        data = self.header(id, is_transactional=is_transactional, epoch=epoch)
        header = read_header(data)
        guard = None
        if is_transactional:
            guard = self.partition.begin_verification(header, 0, supports_epoch_bump=False)
        self.partition.append_as_leader(data, header, self.time_ms, all_acks=False, guard=guard)

    def produce_something(self) -> None:
        roll = self.rng.random()
        if roll < 0.1:
            data = memoryview(bytearray(encode_batch([RecordInput(None, b"v", (), self.time_ms)])))
            self.partition.append_as_leader(data, read_header(data), self.time_ms, all_acks=False)
            return
        id = self.rng.choice(PRODUCERS)
        entry = self.partition.producers.entry(id)
        is_open = entry is not None and entry.first_offset >= 0
        try:
            self.produce(id, is_transactional=is_open or roll < 0.9)
            self.counts["data"] += 1
        except KafkaError as error:
            assert self.partition.producers.is_behind, error

    def end(self, id: int, kind: int, *, version: int = 0, epoch: int | None = None) -> None:
        entry = self.partition.producers.entry(id)
        if epoch is None:
            epoch = max(0, -1 if entry is None else entry.epoch) + (version >= 2)
        marker = Marker(kind, self.coordinator_epoch)
        self.time_ms += self.rng.randrange(3)
        self.partition.end_transaction(EndOfTransaction(id, epoch, marker, version), self.time_ms)

    def end_something(self) -> None:
        self.coordinator_epoch += self.rng.random() < 0.1
        kind = self.rng.choice((ABORT, ABORT, COMMIT))
        try:
            self.end(self.rng.choice(PRODUCERS), kind, version=self.rng.choice((0, 2)))
            self.counts["marker"] += 1
        except KafkaError as error:
            assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and self.partition.producers.is_behind

    # -- files -----------------------------------------------------------------------------------------

    def store_high_watermark(self) -> None:
        now(self.logs.checkpoints.write_high_watermarks({KEY: self.partition.high_watermark}))

    def flush(self) -> None:
        now(self.logs.flush(KEY))
        now(self.logs.checkpoints.write({KEY: self.partition.high_watermark}))
        self.counts["flush"] += 1

    def restart(self, how: str) -> None:
        self.counts[how] += 1
        high_watermark = self.partition.high_watermark
        if how == "stop":
            now(self.logs.stop(1, {KEY: high_watermark}))
        elif how == "power":
            self.disk.crash(self.rng)
        else:
            abandon(self.logs)
        self.start()

    def step(self) -> None:
        roll = self.rng.random()
        if self.partition.producers.is_behind and roll < 0.3:
            now(self.logs.producers.rebuild(KEY, self.partition.high_watermark))
            self.partition.producers_rebuilt()
        roll = self.rng.random()
        if roll < 0.5:
            self.produce_something()
        elif roll < 0.7:
            self.end_something()
        elif roll < 0.88:
            self.acknowledge()
        elif roll < 0.9:
            self.store_high_watermark()
        elif roll < 0.92:
            self.flush()
        elif roll < 0.96:
            self.cut()
        else:
            self.restart(self.rng.choice(("stop", "kill", "power")))

    # -- what must hold --------------------------------------------------------------------------------

    def check(self) -> None:
        check_replica(self.partition, self.rng)


def check_replica(partition: Partition, rng: Random) -> None:
    """The derived state of a replica equals what its log gives."""
    log, seen = partition.log, see(partition.log)
    stable = seen.last_stable_offset(partition.high_watermark)
    if partition.producers.is_behind:
        assert partition.last_stable_offset <= stable, "an undecided record is shown"
    else:
        assert partition.last_stable_offset == stable, "the last stable offset is wrong"
        check_producers(partition, seen)
        assert list(log.iter_aborted()) == seen.aborted, "the transaction indexes are wrong"
        difference = find_difference(log, partition.producers, is_loaded=False)
        assert difference is None, difference
    for _ in range(3):
        if partition.last_stable_offset > log.log_start_offset:
            check_read(
                partition, seen, rng.randrange(partition.last_stable_offset), rng.choice((1, 400, 9999))
            )


def check_producers(partition: Partition, seen: Seen) -> None:
    assert set(partition.producers.capture()) == set(seen.entries)
    for id, entry in partition.producers.capture().items():
        epoch, batches, *rest = seen.entries[id]
        known = [(batch.first_sequence, batch.last_sequence, batch.base_offset) for batch in entry.batches]
        assert entry.epoch == epoch
        assert known == batches[len(batches) - len(known) :] and bool(known) == bool(batches)
        assert [entry.coordinator_epoch, entry.first_offset, entry.timestamp_ms] == rest


def check_read(partition: Partition, seen: Seen, offset: int, max_bytes: int) -> None:
    """A reader of committed transactions sees exactly what was committed."""
    piece = present(partition.read_stable(offset, max_bytes, at_least_one=True))
    data = memoryview(piece.file.pread(piece.position, piece.size_bytes))
    headers: list[tuple[int, BatchHeader]] = list(iter_headers(data))
    end = headers[-1][1].next_offset
    assert end <= partition.last_stable_offset, "an undecided record is shown"
    aborted = [(one.producer_id, one.first_offset) for one in partition.aborted_in(piece, offset)]
    shown = {
        record.offset
        for position, header in visible_batches(data, headers, aborted)
        for record in decode_batch(data[position : position + header.size_bytes], header)
    }
    expected = {visible for visible in seen.visible if headers[0][1].base_offset <= visible < end}
    assert shown == expected, "a reader sees what was aborted, or misses what was committed"
