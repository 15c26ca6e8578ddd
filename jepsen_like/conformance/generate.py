"""Scripts from seeds: which moves follow each other."""

from collections.abc import Callable
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
    """The choices for scripts.

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
            draw.some(*_ANY)(draw)
        elif protocol == "classic":
            draw.some(*_CLASSIC)(draw, classic)
        else:
            draw.some(*_CONSUMER)(draw, consumer)
        if draw.rarely(10) and kind != "mixed":
            _stray_move(draw, kind, classic)
    offset_moves.look_at_everything(draw)
    return Script(seed, tuple(draw.steps))


def _stray_move(draw: Draw, kind: str, classic: ClassicKind) -> None:
    """A request of the other protocol that no member of the group could have sent."""
    if kind == "classic":
        consumer_moves.beat_as_a_stranger(draw, draw.actor())
    elif draw.rarely(2):
        classic_moves.sync(draw, draw.actor(), classic)
    else:
        classic_moves.heartbeat(draw, draw.actor())


_ANY: Final[tuple[tuple[int, Callable[[Draw], None]], ...]] = (
    (6, lambda draw: offset_moves.commit(draw, draw.actor())),
    (4, lambda draw: offset_moves.fetch(draw, draw.actor())),
    (1, offset_moves.delete_groups),
    (2, offset_moves.delete_offsets),
    (2, offset_moves.list_groups),
    (3, offset_moves.describe),
)
_CLASSIC: Final[tuple[tuple[int, Callable[[Draw, ClassicKind], None]], ...]] = (
    (4, classic_moves.rebalance),
    (3, lambda draw, kind: classic_moves.join(draw, draw.actor(), kind)),
    (3, lambda draw, kind: classic_moves.sync(draw, draw.actor(), kind)),
    (3, lambda draw, _: classic_moves.heartbeat(draw, draw.actor())),
    (3, lambda draw, _: classic_moves.leave(draw, draw.actor())),
)
_CONSUMER: Final[tuple[tuple[int, Callable[[Draw, ConsumerKind], None]], ...]] = (
    (4, lambda draw, kind: consumer_moves.join(draw, draw.actor(), kind)),
    (6, lambda draw, kind: consumer_moves.stay(draw, draw.actor(), kind)),
    (2, lambda draw, _: consumer_moves.leave(draw, draw.actor())),
    (3, consumer_moves.settle),
    (1, lambda draw, _: classic_moves.leave(draw, draw.actor())),
)
