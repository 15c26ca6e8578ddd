"""Scripts from seeds: which moves follow each other."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from pykraft.jepsen_like.conformance.draw import ACTORS, Draw, Versions
from pykraft.jepsen_like.conformance.moves import classic as classic_moves
from pykraft.jepsen_like.conformance.moves import consumer as consumer_moves
from pykraft.jepsen_like.conformance.moves import offsets as offset_moves
from pykraft.jepsen_like.conformance.moves.classic import ClassicKind
from pykraft.jepsen_like.conformance.moves.consumer import ConsumerKind
from pykraft.jepsen_like.conformance.script import Script

MIN_MOVES: Final = 6
MAX_MOVES: Final = 25


@dataclass(frozen=True, slots=True)
class Choice:
    """What scripts may contain.

    ``consumer``: groups of the consumer protocol, too. ``mixed``: both protocols in one group, which tests
    the migration between them. ``regex``: subscriptions by regular expression, which are resolved at their
    own time.
    """

    classic: bool = True
    consumer: bool = True
    mixed: bool = False
    regex: bool = False


def generate(seed: int, versions: Versions, choice: Choice) -> Script:
    """The script of ``seed``: the same for the same versions and choice."""
    rng = Random(seed)
    draw = Draw(rng, versions, static=frozenset(actor for actor in range(ACTORS) if rng.randrange(3) == 0))
    classic = ClassicKind(draw.some((4, "consumer"), (1, "connect"), (1, "anything")))
    consumer = ConsumerKind(draw.some((2, "range"), (1, "uniform"), (1, None)), choice.regex)
    kinds = [choice.classic * "classic", choice.consumer * "consumer", choice.mixed * "mixed"]
    kind = rng.choice([name for name in kinds if name])
    for _ in range(rng.randint(MIN_MOVES, MAX_MOVES)):
        protocol = rng.choice(("classic", "consumer")) if kind == "mixed" else kind
        if draw.rarely(3):
            _any_move(draw)
        elif protocol == "classic":
            _classic_move(draw, classic)
        else:
            _consumer_move(draw, consumer)
        if draw.rarely(10) and kind != "mixed":
            _stray_move(draw, kind, classic)
    offset_moves.look_at_everything(draw)
    return Script(seed, tuple(draw.steps))


def _any_move(draw: Draw) -> None:
    match draw.some((6, "commit"), (4, "fetch"), (1, "delete"), (2, "forget"), (2, "list"), (3, "describe")):
        case "commit":
            offset_moves.commit(draw, draw.actor())
        case "fetch":
            offset_moves.fetch(draw, draw.actor())
        case "delete":
            offset_moves.delete_groups(draw)
        case "forget":
            offset_moves.delete_offsets(draw)
        case "list":
            offset_moves.list_groups(draw)
        case _:
            offset_moves.describe(draw)


def _classic_move(draw: Draw, kind: ClassicKind) -> None:
    match draw.some((4, "rebalance"), (3, "join"), (3, "sync"), (3, "heartbeat"), (3, "leave")):
        case "rebalance":
            classic_moves.rebalance(draw, kind)
        case "join":
            classic_moves.join(draw, draw.actor(), kind)
        case "sync":
            classic_moves.sync(draw, draw.actor(), kind)
        case "heartbeat":
            classic_moves.heartbeat(draw, draw.actor())
        case _:
            classic_moves.leave(draw, draw.actor())


def _consumer_move(draw: Draw, kind: ConsumerKind) -> None:
    match draw.some((4, "join"), (6, "stay"), (2, "leave"), (3, "settle"), (1, "remove")):
        case "join":
            consumer_moves.join(draw, draw.actor(), kind)
        case "stay":
            consumer_moves.stay(draw, draw.actor(), kind)
        case "leave":
            consumer_moves.leave(draw, draw.actor())
        case "settle":
            consumer_moves.settle(draw, kind)
        case _:
            classic_moves.leave(draw, draw.actor())


def _stray_move(draw: Draw, kind: str, classic: ClassicKind) -> None:
    """A request of the other protocol that no member of the group could have sent."""
    if kind == "classic":
        consumer_moves.beat_as_a_stranger(draw, draw.actor())
    elif draw.rarely(2):
        classic_moves.sync(draw, draw.actor(), classic)
    else:
        classic_moves.heartbeat(draw, draw.actor())
