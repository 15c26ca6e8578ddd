"""A script: requests of several actors, in one order, with blanks for what only the answers tell.

A request is a message with a :class:`Blank` in the place of a value that depends on earlier answers: the id
that a member was given, its epoch, its partitions. The player fills the blanks in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.schema import Message

TOPICS: Final = {"apples": 3, "berries": 2, "cherries": 1}
"""The topics that exist on both systems, with their numbers of partitions."""
NO_TOPIC: Final = "no-such-topic"
NO_TOPIC_ID: Final = Uuid(b"no such topic id")

_LONGEST_TOLD: Final = 100

Partition = tuple[str, int]


@dataclass(slots=True)
class Actor:
    """What a client has learned so far. ``epoch`` is the generation of a classic member."""

    member_id: str = ""
    older_ids: list[str] = field(default_factory=list)
    epoch: int = -1
    assigned: tuple[Partition, ...] = ()

    def learn_id(self, member_id: str) -> None:
        if member_id and member_id != self.member_id:
            if self.member_id:
                self.older_ids.append(self.member_id)
            self.member_id = member_id


class Facts(Protocol):
    """What the blanks of a script are filled with."""

    def actor(self, number: int) -> Actor: ...

    def group_id(self, name: str) -> str: ...

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
class GroupId:
    """A group of this script; a run has a name of its own for it."""

    name: str

    def fill(self, facts: Facts) -> str:
        return facts.group_id(self.name)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class TopicId:
    name: str

    def fill(self, facts: Facts) -> Uuid:
        return facts.topic_id(self.name)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Owned:
    """What the actor was assigned, as a list of ``make(topic id, partitions)``, perhaps changed."""

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
    """One request of one actor, as version ``version``."""

    actor: int
    version: int
    request: Message

    def __repr__(self) -> str:
        return f"actor {self.actor}: {_told(self.request, self.version)}"


@dataclass(frozen=True, slots=True)
class Script:
    seed: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}", *(f"{number:3} {step!r}" for number, step in enumerate(self.steps))]
        return "\n".join(lines)


def _told(message: Message, version: int) -> str:
    """A message in short: without the fields that its version lacks."""
    name = type(message).__name__.removesuffix("Request")
    return f"{name} v{version}({_fields_told(message, version)})"


def _fields_told(value: Any, version: int) -> str:
    present = (spec for spec in value.FIELDS if version in spec.versions)
    return ", ".join(f"{spec.name}={_value_told(getattr(value, spec.name), version)}" for spec in present)


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
