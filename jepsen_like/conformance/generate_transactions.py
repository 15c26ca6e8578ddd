"""Scripts of transactions from seeds: which moves follow each other."""

from collections.abc import Callable
from random import Random
from typing import Final

from pykraft.jepsen_like.conformance.draw import ACTORS, ADMIN, Versions
from pykraft.jepsen_like.conformance.moves import classic as classic_moves
from pykraft.jepsen_like.conformance.moves import consumer as consumer_moves
from pykraft.jepsen_like.conformance.moves import markers as marker_moves
from pykraft.jepsen_like.conformance.moves import producers as producer_moves
from pykraft.jepsen_like.conformance.moves import reading as reading_moves
from pykraft.jepsen_like.conformance.moves import transactional_offsets as transactional_offset_moves
from pykraft.jepsen_like.conformance.moves import transactions as transaction_moves
from pykraft.jepsen_like.conformance.moves.classic import ClassicKind
from pykraft.jepsen_like.conformance.moves.consumer import ConsumerKind
from pykraft.jepsen_like.conformance.script import Script, Step, TransactionalId, blank
from pykraft.jepsen_like.conformance.transaction_draw import (
    LAST_EPOCH,
    OWN_IDS,
    PLACES,
    TRANSACTION_TOPICS,
    TransactionDraw,
)
from pykraft.kafka_protocol.messages.transactions import DescribeTransactionsRequest

MIN_MOVES: Final = 5
MAX_MOVES: Final = 20
SHORT_TIMEOUT_MS: Final = 1_200
"""Longer than it takes to play the steps of one move, shorter than :data:`.settling.SOON_MS`."""

Move = Callable[[TransactionDraw], None]


def generate_transactions(seed: int, versions: Versions) -> Script:
    """The script of ``seed``: the same for the same versions."""
    rng = Random(seed)
    draw = TransactionDraw(rng, versions, newer=_newer(rng))
    for actor in draw.subset(range(ACTORS), least=1 if draw.rarely(4) else ACTORS):
        producer_moves.init_plainly(draw, actor)
    if draw.rarely(3):
        _join_group(draw)
    for _ in range(rng.randint(MIN_MOVES, MAX_MOVES)):
        draw.some(*_MOVES)(draw)
    if draw.rarely(6):
        _time_out(draw)
    reading_moves.look_at_everything(draw)
    return Script(seed, tuple(draw.steps), TRANSACTION_TOPICS, _first_epochs(draw))


def _first_epochs(draw: TransactionDraw) -> tuple[tuple[str, int], ...]:
    """Now and then the epochs of a producer id are used up amid the script. It takes seconds to get there."""
    if not draw.rarely(20):
        return ()
    return ((OWN_IDS[0], LAST_EPOCH - draw.rng.randint(2, 9)),)


def _newer(rng: Random) -> frozenset[int]:
    """All actors go by the same rules, mostly: those that share a transactional id, always by chance."""
    kind = rng.randrange(5)
    if kind < 2:
        return frozenset(range(ACTORS))
    if kind < 4:
        return frozenset()
    return frozenset(actor for actor in range(ACTORS) if rng.randrange(2))


def _transaction(draw: TransactionDraw) -> None:
    """A whole transaction, perhaps with a new epoch before, perhaps left open."""
    actor = draw.actor()
    if draw.rarely(3):
        producer_moves.init_plainly(draw, actor)
    _write_into_one(draw, actor)
    if not draw.rarely(4):
        transaction_moves.end(draw, actor, sound=True)
        if draw.rarely(4):
            transaction_moves.end_again(draw, actor)


def _write_into_one(draw: TransactionDraw, actor: int) -> None:
    places = list(draw.subset(PLACES, least=0 if draw.rarely(10) else 1))
    if places:
        if actor not in draw.newer:
            transaction_moves.add_partitions(draw, actor, places)
        for _ in range(draw.rng.randint(1, 2)):
            producer_moves.produce(draw, actor, places)
    if draw.rarely(3):
        if actor not in draw.newer:
            transaction_moves.add_offsets(draw, actor, sound=True)
        transactional_offset_moves.commit(draw, actor, sound=True)


def _zombie(draw: TransactionDraw) -> None:
    """One takes over the transactional id of another, who goes on."""
    former, later = draw.rng.sample([0, 1], 2)
    _write_into_one(draw, former)
    producer_moves.init_plainly(draw, later)
    if draw.rarely(2):
        _write_into_one(draw, later)
    for move in draw.subset((producer_moves.produce_something, transaction_moves.end), least=1):
        move(draw, former)
    if draw.rarely(2):
        transaction_moves.end(draw, later, sound=True)


def _time_out(draw: TransactionDraw) -> None:
    """A transaction takes too long; its producer comes back, and another one begins."""
    actor = draw.actor()
    producer_moves.init_plainly(draw, actor, SHORT_TIMEOUT_MS)
    _write_into_one(draw, actor)
    request = DescribeTransactionsRequest(transactional_ids=[blank(TransactionalId(OWN_IDS[actor]))])
    draw.steps.append(Step(ADMIN, 0, request, until_ended=True))
    reading_moves.describe_producers(draw)
    returns = (producer_moves.produce_something, transaction_moves.end, transaction_moves.end_again)
    for move in draw.subset(returns):
        move(draw, actor)
    producer_moves.init_plainly(draw, actor)
    if draw.rarely(2):
        _write_into_one(draw, actor)
        transaction_moves.end(draw, actor, sound=True)


def _join_group(draw: TransactionDraw) -> None:
    """A group gets members, of the classic or of the consumer protocol."""
    if draw.rarely(2):
        classic = ClassicKind("consumer")
        actor = draw.actor()
        classic_moves.join(draw, actor, classic, least_version=4)
        classic_moves.join(draw, actor, classic, least_version=4)
        classic_moves.sync(draw, actor, classic)
    else:
        consumer_moves.join(draw, draw.actor(), ConsumerKind("uniform", regex=False))


def _of_an_actor(move: Callable[[TransactionDraw, int], None]) -> Move:
    return lambda draw: move(draw, draw.actor())


_MOVES: Final[tuple[tuple[int, Move], ...]] = (
    (14, _transaction),
    (4, _zombie),
    (4, _of_an_actor(producer_moves.init)),
    (1, _of_an_actor(producer_moves.init_idempotent)),
    (8, _of_an_actor(producer_moves.produce_something)),
    (6, _of_an_actor(transaction_moves.add_something)),
    (4, _of_an_actor(transaction_moves.add_offsets)),
    (6, _of_an_actor(transactional_offset_moves.commit)),
    (6, _of_an_actor(transaction_moves.end)),
    (3, _of_an_actor(transaction_moves.end_again)),
    (3, marker_moves.write),
    (2, transactional_offset_moves.commit_outside),
    (1, transactional_offset_moves.forget),
    (3, transactional_offset_moves.fetch),
    (4, reading_moves.fetch),
    (3, reading_moves.list_offsets),
    (1, reading_moves.delete_records),
    (3, reading_moves.describe_producers),
    (2, reading_moves.describe_transactions),
    (2, reading_moves.list_transactions),
    (2, reading_moves.find_coordinator),
)
