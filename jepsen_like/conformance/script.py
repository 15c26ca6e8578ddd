"""A script: requests of several actors, in one order, with blanks for what only the answers tell.

A request is a message with a :class:`Blank` in the place of a value that depends on earlier answers: the id
that a member was given, its epoch, its partitions. The player fills the blanks in.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.ids import Uuid

TOPICS: Final = {"apples": 3, "berries": 2, "cherries": 1}
"""The topics that exist on both systems, with their numbers of partitions."""
NO_TOPIC: Final = "no-such-topic"
NO_TOPIC_ID: Final = Uuid(b"no such topic id")

_LONGEST_TOLD: Final = 100

Partition = tuple[str, int]


@dataclass(slots=True)
class Producer:
    """A client's knowledge of its own producer id."""

    id: int = -1
    epoch: int = -1
    older: list[tuple[int, int]] = field(default_factory=list)
    """The ids and epochs that it had before."""
    next_sequences: dict[Partition, int] = field(default_factory=dict)
    sent: dict[Partition, int] = field(default_factory=dict)
    """The sequence after the batch that was sent last."""

    def learn(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) == (self.id, self.epoch):
            return
        if self.id >= 0:
            self.older.append((self.id, self.epoch))
        self.id, self.epoch = producer_id, epoch
        self.next_sequences.clear()
        self.sent.clear()


@dataclass(slots=True)
class Actor:
    """A client's knowledge so far. ``epoch`` is the generation of a classic member."""

    member_id: str = ""
    older_ids: list[str] = field(default_factory=list)
    epoch: int = -1
    assigned: tuple[Partition, ...] = ()
    producer: Producer = field(default_factory=Producer)

    def learn_id(self, member_id: str) -> None:
        if member_id and member_id != self.member_id:
            if self.member_id:
                self.older_ids.append(self.member_id)
            self.member_id = member_id


class Facts(Protocol):
    """The values for the blanks of a script."""

    def actor(self, number: int) -> Actor: ...

    def own_name(self, name: str) -> str:
        """The name of a group or transactional id in this run."""

    def topic_name(self, name: str) -> str: ...

    def topic_id(self, name: str) -> Uuid: ...


class Blank(Protocol):
    def fill(self, facts: Facts) -> object: ...


@dataclass(frozen=True, slots=True)
class MemberId:
    """The id that the actor has, or the one before that; ``otherwise`` until it has one."""

    actor: int
    older: bool = False
    otherwise: str = ""

    def fill(self, facts: Facts) -> str:
        actor = facts.actor(self.actor)
        if self.older:
            return actor.older_ids[-1] if actor.older_ids else "an-older-id"
        return actor.member_id or self.otherwise

    def __repr__(self) -> str:
        return f"{{{'older ' * self.older}id of {self.actor}{' or ' * bool(self.otherwise)}{self.otherwise}}}"


@dataclass(frozen=True, slots=True)
class Epoch:
    """The generation or member epoch that the actor knows, and so many more."""

    actor: int
    more: int = 0

    def fill(self, facts: Facts) -> int:
        return facts.actor(self.actor).epoch + self.more

    def __repr__(self) -> str:
        return f"{{epoch of {self.actor}{f' {self.more:+}' if self.more else ''}}}"


@dataclass(frozen=True, slots=True)
class _Named:
    name: str

    def __repr__(self) -> str:
        return self.name


class GroupId(_Named):
    """A group of this script; a run has a name of its own for it."""

    def fill(self, facts: Facts) -> str:
        return facts.own_name(self.name)


@dataclass(frozen=True, repr=False)
class TransactionalId(GroupId):
    """A transactional id in the same way. ``before`` and ``after``: a regular expression around it."""

    before: str = ""
    after: str = ""

    def fill(self, facts: Facts) -> str:
        return self.before + facts.own_name(self.name) + self.after

    def __repr__(self) -> str:
        return self.before + self.name + self.after


class TopicName(_Named):
    def fill(self, facts: Facts) -> str:
        return facts.topic_name(self.name)


class TopicId(_Named):
    def fill(self, facts: Facts) -> Uuid:
        return facts.topic_id(self.name)


@dataclass(frozen=True, slots=True)
class Owned:
    """The actor's assignment as a list of ``make(topic id, partitions)``, perhaps changed."""

    actor: int
    make: Callable[..., object]
    how: str = "all"
    """``all``, ``less`` (without the last partition) or ``more`` (with one that nobody assigned)."""

    def fill(self, facts: Facts) -> list[object]:
        owned = set(facts.actor(self.actor).assigned)
        if self.how == "less" and owned:
            owned.remove(max(owned))
        if self.how == "more":
            owned.add(
                min((t, p) for t, count in TOPICS.items() for p in range(count + 1) if (t, p) not in owned)
            )
        names = sorted({name for name, _ in owned})
        return [
            self.make(
                topic_id=facts.topic_id(name),
                partitions=sorted(index for topic, index in owned if topic == name),
            )
            for name in names
        ]

    def __repr__(self) -> str:
        return f"{{{self.how} that {self.actor} owns}}"


@dataclass(frozen=True, slots=True)
class Step:
    """One request of one actor, as version ``version``.

    ``until_ended``: DescribeTransactions, repeated until a transaction that times out soon has ended.
    """

    actor: int
    version: int
    request: Request[Any]
    until_ended: bool = False

    def __repr__(self) -> str:
        told = _told(self.request, self.version)
        return f"actor {self.actor}: {told}{' until it has ended' * self.until_ended}"


@dataclass(frozen=True, slots=True)
class Script:
    """``fresh_topics``: topics that each run makes for itself, with their numbers of partitions; without them
    the script uses :data:`TOPICS`. ``first_epochs``: transactional ids whose producers have reached an epoch
    before the first step.
    """

    seed: int
    steps: tuple[Step, ...]
    fresh_topics: tuple[Partition, ...] = ()
    first_epochs: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        begins = [f"    the producer of {name} is at epoch {epoch}" for name, epoch in self.first_epochs]
        lines = [
            f"seed {self.seed}",
            *begins,
            *(f"{number:3} {step!r}" for number, step in enumerate(self.steps)),
        ]
        return "\n".join(lines)


def _told(message: Message, version: int) -> str:
    """A message in short: without the fields that its version lacks, or that have their defaults."""
    name = type(message).__name__.removesuffix("Request")
    return f"{name} v{version}({_fields_told(message, version)})"


def _fields_told(value: Any, version: int) -> str:
    usual = type(value)()
    present = (spec.name for spec in value.FIELDS if version in spec.versions)
    told = [name for name in present if getattr(value, name) != getattr(usual, name)]
    return ", ".join(f"{name}={_value_told(getattr(value, name), version)}" for name in told)


def _value_told(value: Any, version: int) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_value_told(element, version) for element in value)}]"
    if hasattr(value, "FIELDS"):
        return f"({_fields_told(value, version)})"
    if isinstance(value, str | bytes) and len(value) > _LONGEST_TOLD:
        return f"{value[:8]!r}*{len(value)}"
    return repr(value)


def blank(value: Blank) -> Any:
    """``value`` where a message wants a string, a number or a list."""
    return value


def fill(value: Any, facts: Facts) -> Any:
    """A copy of a message, or of a part of it, without blanks."""
    if hasattr(value, "fill"):
        return value.fill(facts)
    if isinstance(value, list):
        return [fill(element, facts) for element in value]
    if hasattr(value, "FIELDS"):
        return type(value)(**{spec.name: fill(getattr(value, spec.name), facts) for spec in value.FIELDS})
    return value


def strings_in(value: Any) -> set[str]:
    """Every string that the script itself says: none of them is hidden in answers."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, list | tuple):
        return set().union(*map(strings_in, value)) if value else set()
    if isinstance(value, Step):
        return strings_in(value.request)
    if isinstance(value, MemberId):
        return {value.otherwise}
    if hasattr(value, "FIELDS"):
        return set().union(*(strings_in(getattr(value, spec.name)) for spec in value.FIELDS))
    return set()
