"""What simulations of one partition share: its controller, and how worlds are run and logs are read."""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypedDict, TypeVar, Unpack

from pykraft.broker.replicas.partition.isr import IsrProposal
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.kafka_protocol.records import iter_headers
from pykraft.log_store.log.log import Log
from pykraft.metadata_log.image import PartitionRegistration

SEEDS_PER_BLOCK = 20


class StateFields(TypedDict, total=False):
    """What the controller changes of the partition."""

    isr: tuple[int, ...]
    leader: int
    leader_epoch: int


class IsrWorld(ABC):
    """The controller's part of a world: it fences, elects and decides on proposals."""

    state: PartitionRegistration

    def __init__(self, seed: int, node_ids: Sequence[int]) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 1000
        self.fenced: set[int] = set()
        self.epochs = dict.fromkeys(node_ids, 0)
        self.next_epoch = 1
        self.counts: Counter[str] = Counter()

    @abstractmethod
    def notify(self) -> None:
        """Inform the nodes of the state."""

    @abstractmethod
    def take_isr(self, isr: tuple[int, ...]) -> None:
        """Change the ISR to an accepted one, which may be the present one."""

    @abstractmethod
    def step(self) -> None: ...

    @abstractmethod
    def check(self) -> None: ...

    @abstractmethod
    def check_logs(self) -> None: ...

    @abstractmethod
    def heal(self) -> None: ...

    def change(self, **fields: Unpack[StateFields]) -> None:
        self.state = replace(self.state, partition_epoch=self.state.partition_epoch + 1, **fields)
        self.notify()

    def fence(self, node_id: int) -> None:
        """As when a session ends: remove it from the ISR unless it is the last, and elect another leader."""
        self.fenced.add(node_id)
        isr = tuple(n for n in self.state.isr if n != node_id) or self.state.isr
        if self.state.leader == node_id:
            self.elect(isr)
        elif isr != self.state.isr:
            self.change(isr=isr)

    def elect(self, isr: tuple[int, ...] | None = None) -> None:
        isr = self.state.isr if isr is None else isr
        candidates = [n for n in isr if n not in self.fenced]
        leader = self.rng.choice(candidates) if candidates else -1
        self.counts["elect"] += 1
        self.change(isr=isr, leader=leader, leader_epoch=self.state.leader_epoch + 1)

    def unfence(self, node_id: int) -> None:
        self.fenced.discard(node_id)
        if self.state.leader == -1 and node_id in self.state.isr:
            self.elect()

    def decide(
        self, leader: int, broker_epoch: int, proposal: IsrProposal
    ) -> tuple[ErrorCode, PartitionRegistration | None]:
        state = self.state
        if proposal.leader_epoch < state.leader_epoch or self.epochs[leader] != broker_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH, None
        if proposal.partition_epoch < state.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION, None
        for member in proposal.new_isr:
            claimed = proposal.broker_epochs.get(member, -1)
            if member in self.fenced or claimed not in (-1, self.epochs[member]):
                return ErrorCode.INELIGIBLE_REPLICA, None
        self.take_isr(proposal.new_isr)
        return ErrorCode.NONE, self.state

    def eligible(self, replica: int, epoch: int) -> bool:
        return replica not in self.fenced and epoch in (-1, self.epochs[replica])


W = TypeVar("W", bound=IsrWorld)


def healed_worlds(block: int, make: Callable[[int], W], *, steps: int, check_logs_every: int) -> Iterator[W]:
    """The worlds of a block of seeds, each stepped and then healed; a failure names its seed."""
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        world = make(seed)
        try:
            for number in range(steps):
                world.step()
                world.check()
                if number % check_logs_every == 0:
                    world.check_logs()
            world.check_logs()
            world.heal()
            world.check_logs()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        yield world


def values_of(data: bytes) -> list[tuple[int, bytes]]:
    return [
        (record.offset, record.value or b"")
        for position, header in iter_headers(data)
        for record in decode_batch(data[position : position + header.size_bytes])
    ]


def log_values(log: Log) -> dict[int, bytes]:
    found = [pair for _, data in log.iter_batches(log.log_start_offset) for pair in values_of(data)]
    return {offset: value for offset, value in found if offset >= log.log_start_offset}


def between(values: dict[int, bytes], begin: int, end: int) -> dict[int, bytes]:
    return {offset: value for offset, value in values.items() if begin <= offset < end}
