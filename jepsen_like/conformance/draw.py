"""Draws what every kind of request needs: versions, groups, members, epochs; mostly sound, sometimes not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from pykraft.jepsen_like.conformance.script import (
    NO_TOPIC,
    TOPICS,
    Epoch,
    GroupId,
    MemberId,
    Step,
    TopicId,
    blank,
)
from pykraft.kafka_protocol.codec.schema import Message, Request

T = TypeVar("T")

ACTORS: Final = 3
ADMIN: Final = 9
"""The actor that is never a member."""
LONG_MS: Final = 900_000
"""Sessions and rebalances never time out while a script runs."""

Versions = Mapping[int, tuple[int, int]]
"""For each API the lowest and highest version that both systems serve."""


@dataclass(slots=True)
class Draw:
    """The random choices of one script. ``static`` actors give an instance id."""

    rng: Random
    versions: Versions
    static: frozenset[int] = frozenset()
    steps: list[Step] = field(default_factory=list)

    def some(self, *weighted: tuple[int, T]) -> T:
        return self.rng.choices([value for _, value in weighted], [weight for weight, _ in weighted])[0]

    def rarely(self, one_in: int = 12) -> bool:
        return self.rng.randrange(one_in) == 0

    def actor(self) -> int:
        return self.rng.randrange(ACTORS)

    def subset(self, values: Sequence[T], least: int = 0) -> list[T]:
        count = self.rng.randint(least, len(values))
        return sorted(self.rng.sample(list(values), count), key=list(values).index)

    def version(self, request: type[Message], least: int = 0, most: int = 99) -> int:
        lowest, highest = self.versions[request.API_KEY]
        lowest = max(lowest, request.MIN_VERSION, least)
        highest = min(highest, request.MAX_VERSION, most)
        return highest if self.rng.randrange(3) == 0 else self.rng.randint(min(lowest, highest), highest)

    def highest(self, request: type[Message]) -> int:
        return min(self.versions[request.API_KEY][1], request.MAX_VERSION)

    def serves(self, request: type[Message]) -> bool:
        return request.API_KEY in self.versions

    def add(self, actor: int, version: int, request: Request[Any]) -> None:
        self.steps.append(Step(actor, version, request))

    def group(self) -> Any:
        return self.some((60, blank(GroupId("g"))), (2, blank(GroupId("other"))), (1, ""))

    def member(self, actor: int, otherwise: str = "") -> Any:
        other = (actor + 1) % ACTORS
        return self.some(
            (40, blank(MemberId(actor, otherwise=otherwise))),
            (2, ""),
            (2, "nobody"),
            (1, blank(MemberId(other))),
            (2, blank(MemberId(actor, older=True))),
        )

    def instance(self, actor: int) -> str | None:
        own = f"instance-{actor}" if actor in self.static else None
        return self.some(
            (40, own),
            (2, None),
            (1, ""),
            (1, "instance-unknown"),
            (1, f"instance-{actor}"),
            (1, "instance-0"),
        )

    def epoch(self, actor: int) -> Any:
        return self.some(
            (40, blank(Epoch(actor))),
            (2, blank(Epoch(actor, -1))),
            (2, blank(Epoch(actor, 1))),
            (1, -1),
            (1, 0),
            (1, -2),
        )

    def topic(self) -> str:
        return NO_TOPIC if self.rarely() else self.rng.choice(list(TOPICS))

    def topic_id(self, name: str) -> Any:
        return blank(TopicId(name))

    def partition(self, topic: str) -> int:
        count = TOPICS.get(topic, 1)
        return self.some((12, self.rng.randrange(count)), (1, count), (1, -1))
