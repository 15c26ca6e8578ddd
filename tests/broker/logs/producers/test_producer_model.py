"""Idempotent producers of one log by seed, next to the list of all that each of them has written.

Batches come late, twice, out of order, from replaced producers, with forged sequences, and after sequence
2^31 - 1; the log is truncated and rebuilt, also from a snapshot, and idle producers are forgotten. Every
batch enters the log once and in order: a repeated one gets its first offset, whatever its size, as long as it
is among the last five; nothing else is taken from a producer that is known, and of an unknown one only what
may begin.
"""

from dataclasses import replace
from itertools import takewhile
from random import Random

import pytest

from pykraft.broker.logs.producers.rebuild import ProducerRebuild, rebuild, snapshot_entries
from pykraft.broker.logs.producers.state import ProducerState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import BatchHeader, read_header

IN_FLIGHT = 5
MAX_IDLE_MS = 1_000
LAST_SEQUENCE = 2**31 - 1
TEMPLATE = read_header(encode_batch([RecordInput(None, b"v", (), 1)]))


class Client:
    """A producer, as it sees itself. ``sent``: (epoch, sequence, count) of what it may send again."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = 0
        self.sequence = 0
        self.sent: list[tuple[int, int, int]] = []


def newest_run(log: list[BatchHeader], producer_id: int) -> list[BatchHeader]:
    """The last batches of a producer that are of one epoch."""
    mine = [one for one in log if one.producer_id == producer_id]
    run = list(takewhile(lambda one: one.producer_epoch == mine[-1].producer_epoch, reversed(mine)))
    return run[::-1]


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.state = ProducerState()
        self.log: list[BatchHeader] = []
        self.start_offset = 0
        self.clients = [Client(number) for number in range(4)]
        self.now_ms = 0
        #: Producers that are known, and how many of their last batches, at least.
        self.window: dict[int, int] = {}
        self.is_complete = True

    @property
    def end_offset(self) -> int:
        return self.log[-1].next_offset if self.log else self.start_offset

    def header(self, producer_id: int, epoch: int, sequence: int, count: int) -> BatchHeader:
        return replace(
            TEMPLATE,
            base_offset=self.end_offset,
            last_offset_delta=count - 1,
            record_count=count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )

    def written(self, producer_id: int) -> list[BatchHeader]:
        """Since it is known, in its newest epoch, oldest first."""
        return newest_run(self.log, producer_id) if producer_id in self.window else []

    # -- clients ---------------------------------------------------------------------------------------

    def send(self) -> None:
        client = self.rng.choice(self.clients)
        roll = self.rng.random()
        epoch, sequence, count = client.epoch, client.sequence, self.rng.randint(1, 3)
        if roll < 0.35 and client.sent:
            epoch, sequence, count = self.rng.choice(client.sent[-7:])
            if roll < 0.05:
                count += self.rng.choice((-1, 1)) or 1
        elif roll < 0.40:
            sequence = (sequence + self.rng.choice((-4, -1, 1, 5))) & LAST_SEQUENCE
        elif roll < 0.45:
            epoch, sequence = epoch + self.rng.choice((-1, 1)), self.rng.choice((0, sequence))
        elif roll < 0.50:
            client.epoch, client.sequence = client.epoch + 1, 0
            epoch, sequence = client.epoch, 0
        elif roll < 0.53:
            sequence = LAST_SEQUENCE - self.rng.randrange(3)
        if count > 0 and epoch >= 0 and self.deliver(client.producer_id, epoch, sequence, count):
            client.epoch = epoch
            client.sequence = (sequence + count) & LAST_SEQUENCE
            client.sent.append((epoch, sequence, count))

    def deliver(self, producer_id: int, epoch: int, sequence: int, count: int) -> bool:
        """Whether it is appended; the answer is compared with what the log shows."""
        header = self.header(producer_id, epoch, sequence, count)
        try:
            original = self.state.check(header)
        except KafkaError as error:
            self.check_refusal(header, error.code)
            return False
        assert not self.state.is_behind, "a producer was judged although its batches are not known"
        if original is not None:
            assert any(
                (one.base_sequence, one.last_sequence, one.base_offset)
                == (sequence, header.last_sequence, original.base_offset)
                for one in self.written(producer_id)
            ), "the answer to another batch"
            return False
        self.check_accepted(header)
        self.state.replay(header)
        self.log.append(header)
        known = self.window.get(producer_id, 0) if self.is_same_epoch(header) else 0
        self.window[producer_id] = min(known + 1, IN_FLIGHT)
        return True

    def is_same_epoch(self, header: BatchHeader) -> bool:
        mine = [one for one in self.log[:-1] if one.producer_id == header.producer_id]
        return bool(mine) and mine[-1].producer_epoch == header.producer_epoch

    def known(self, header: BatchHeader) -> bool:
        """Whether it repeats one of the last batches."""
        mine = self.written(header.producer_id)
        if not mine or mine[-1].producer_epoch != header.producer_epoch:
            return False
        last = mine[-self.window[header.producer_id] :]
        return (header.base_sequence, header.last_sequence) in [
            (one.base_sequence, one.last_sequence) for one in last
        ]

    def check_accepted(self, header: BatchHeader) -> None:
        mine = self.written(header.producer_id)
        if not mine:
            assert header.base_sequence == 0 or not self.is_complete, (
                "an unknown producer begins in its middle"
            )
        elif header.producer_epoch > mine[-1].producer_epoch:
            assert header.base_sequence == 0, "an epoch begins in its middle"
        else:
            assert header.producer_epoch == mine[-1].producer_epoch, "a replaced producer writes"
            expected = (mine[-1].last_sequence + 1) & LAST_SEQUENCE
            assert header.base_sequence == expected, "a batch is out of order"

    def check_refusal(self, header: BatchHeader, code: ErrorCode) -> None:
        if self.state.is_behind:
            assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            return
        assert not self.known(header), "a repeated batch is refused"
        mine = self.written(header.producer_id)
        if not mine:
            assert header.base_sequence != 0 and self.is_complete, "a producer that was forgotten is refused"
        elif header.producer_epoch != mine[-1].producer_epoch:
            is_old = header.producer_epoch < mine[-1].producer_epoch
            assert (code is ErrorCode.INVALID_PRODUCER_EPOCH) is is_old
            assert is_old or header.base_sequence != 0, "a new epoch is refused"
        else:
            expected = (mine[-1].last_sequence + 1) & LAST_SEQUENCE
            assert header.base_sequence != expected, "the next batch is refused"

    # -- the log ---------------------------------------------------------------------------------------

    def truncate(self) -> None:
        end = self.rng.choice(self.log[-6:]).base_offset if self.log else 0
        self.log = [one for one in self.log if one.base_offset < end]
        if self.state.is_behind or not self.state.truncate_to(end):
            self.state.fall_behind()
            return
        kept = {
            number: 0 if (entry := self.state.entry(number)) is None else len(entry.batches)
            for number in self.window
        }
        self.window = {number: count for number, count in kept.items() if count}

    def catch_up(self) -> None:
        """Read the log again, all of it or what is after a snapshot and a little before it."""
        at = self.rng.randrange(len(self.log) + 1)
        if self.rng.random() < 0.5:
            self.state.adopt(rebuild(((one, None) for one in self.log), log_start_offset=0))
        else:
            before = rebuild(((one, None) for one in self.log[:at]), log_start_offset=0)
            entries = snapshot_entries(before.capture())
            offset = self.log[at].base_offset if at < len(self.log) else self.end_offset
            fresh = ProducerRebuild(entries, offset, complete=True)
            for header in self.log[max(0, at - 4 * IN_FLIGHT) :]:
                fresh.replay(header)
            self.state.adopt(fresh.finish())
        self.is_complete = True
        ids = {one.producer_id for one in self.log}
        self.window = {number: self.at_hand(number, at) for number in ids}

    def at_hand(self, producer_id: int, at: int) -> int:
        """How many of its last batches a rebuild from a snapshot after ``at`` batches must know."""
        replayed = newest_run(self.log[max(0, at - 4 * IN_FLIGHT) :], producer_id)
        return max(1, min(IN_FLIGHT, len(replayed)))

    def expire(self) -> None:
        self.state.expire(self.now_ms, MAX_IDLE_MS)
        self.now_ms += MAX_IDLE_MS + 1
        written = set()
        for client in self.rng.sample(self.clients, 2):  # these write in between, the others are forgotten
            mine = self.written(client.producer_id)
            if mine:
                last = mine[-1]
                sequence = (last.last_sequence + 1) & LAST_SEQUENCE
                if self.deliver(client.producer_id, last.producer_epoch, sequence, 1):
                    written.add(client.producer_id)
                client.epoch, client.sequence = last.producer_epoch, (sequence + 1) & LAST_SEQUENCE
        self.state.expire(self.now_ms, MAX_IDLE_MS)
        if gone := self.window.keys() - written:
            self.is_complete = False
            for number in gone:
                del self.window[number]
                assert self.state.entry(number) is None, "an idle producer is kept"

    def step(self) -> None:
        if self.state.is_behind and self.rng.random() < 0.3:
            self.catch_up()
        roll = self.rng.random()
        if roll < 0.03:
            self.truncate()
        elif roll < 0.04 and not self.state.is_behind:
            self.expire()
        elif roll < 0.06:
            self.state.fall_behind()
        else:
            self.send()


@pytest.mark.parametrize("seed", range(16))
def test_every_batch_enters_the_log_once_and_in_order(seed: int) -> None:
    world = World(seed)
    for _ in range(250):
        world.step()
    assert len(world.log) > 10
