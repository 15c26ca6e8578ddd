"""Linearizability of one object: is there an order of its operations that explains every answer?

An operation takes effect at one moment between its invocation and its answer. One whose outcome is unknown
may take effect at any later time, or never; one that certainly failed never does, and is not given to the
checker. Objects are independent (Herlihy and Wing), so each is checked alone.

The search is Wing and Gong's, with Lowe's memory of the configurations that were met: which operations have
taken effect, and the state after them. It is iterative. An operation that only observes takes effect as soon
as the state is what it found, since that can spoil nothing; so mostly the order of concurrent writes remains
to be found. In the worst case the search is exponential: it ends after ``budget`` configurations, undecided.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

DEFAULT_BUDGET: Final = 300_000


class Impossible(Enum):
    """A step's result if the state does not allow the action."""

    IMPOSSIBLE = "impossible"


IMPOSSIBLE: Final = Impossible.IMPOSSIBLE

A = TypeVar("A")
S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Model(Generic[S, A]):
    """A sequential object. ``step``: the state after an action. ``observes``: whether an action only reads.

    An operation of unknown outcome is believed to have taken effect only where that makes another one
    possible. So whether one did must not matter any more once another has changed the state.
    """

    initial: S
    step: Callable[[S, A], S | Impossible]
    observes: Callable[[A], bool]


@dataclass(frozen=True, slots=True)
class Operation(Generic[A]):
    """Times in microseconds; ``answered_us`` None: nobody knows whether it has happened.

    Of two operations the first precedes the second if it was answered before the second was invoked. At the
    same microsecond they are concurrent.
    """

    action: A
    invoked_us: int
    answered_us: int | None


class Verdict(StrEnum):
    LINEARIZABLE = "linearizable"
    VIOLATION = "not linearizable"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Judgement(Generic[A]):
    """``configurations``: how many were met. ``stuck``: of a violation, the operation that no order explains
    after most of the others have been explained."""

    verdict: Verdict
    configurations: int
    stuck: Operation[A] | None = None


def judge(
    operations: Iterable[Operation[A]], model: Model[S, A], budget: int = DEFAULT_BUDGET
) -> Judgement[A]:
    """Whether one object's operations are linearizable. ``budget`` bounds time and memory."""
    return _Search(operations, model).run(budget)


class _Configuration(NamedTuple, Generic[S]):
    """Which operations have taken effect, and the state after them.

    The answered ones: all before the place ``low``, and those whose bits are set in ``beyond`` (bit 0 is
    that of ``low``, and is never set). The ones with an unknown outcome: those whose bits are set in
    ``guessed``.
    """

    low: int
    beyond: int
    guessed: int
    state: S

    @property
    def explained(self) -> int:
        return self.low + self.beyond.bit_count()


class _Search(Generic[S, A]):
    def __init__(self, operations: Iterable[Operation[A]], model: Model[S, A]) -> None:
        by_invocation = sorted(operations, key=lambda operation: operation.invoked_us)
        self._answered = [one for one in by_invocation if one.answered_us is not None]
        self._unknown = [one for one in by_invocation if one.answered_us is None]
        self._unknown_invoked_us = [one.invoked_us for one in self._unknown]
        self._model = model

    def run(self, budget: int) -> Judgement[A]:
        start = deepest = _Configuration(0, 0, 0, self._model.initial)
        met = {start}
        path = [iter((start,))]
        while path:
            configuration = next(path[-1], None)
            if configuration is None:
                path.pop()
            elif configuration.low == len(self._answered):
                return Judgement(Verdict.LINEARIZABLE, len(met))
            elif configuration is start or configuration not in met:
                if len(met) >= budget:
                    return Judgement(Verdict.UNDECIDED, len(met))
                met.add(configuration)
                if configuration.explained > deepest.explained:
                    deepest = configuration
                path.append(iter(self._following(configuration)))
        stuck = min((one for _, one in self._next(deepest)), key=_answered_us)
        return Judgement(Verdict.VIOLATION, len(met), stuck)

    def _following(self, before: _Configuration[S]) -> Sequence[_Configuration[S]]:
        """The configurations after one more operation: first those whose operation was answered first."""
        found: list[_Configuration[S]] = []
        candidates = sorted(self._next(before), key=lambda candidate: _answered_us(candidate[1]))
        for place, operation in candidates:
            state = self._model.step(before.state, operation.action)
            if state is IMPOSSIBLE:
                continue
            after = _with(before, place, state)
            if self._model.observes(operation.action):
                return (after,)
            found.append(after)
        impossible = [
            one.action for _, one in candidates if self._model.step(before.state, one.action) is IMPOSSIBLE
        ]
        if impossible:
            first_answer = min(_answered_us(operation) for _, operation in candidates)
            found += self._guesses(before, first_answer, impossible)
        return found

    def _guesses(
        self, before: _Configuration[S], first_answer: float, impossible: Sequence[A]
    ) -> Iterator[_Configuration[S]]:
        """After one operation of unknown outcome that makes possible what is not."""
        started = bisect_right(self._unknown_invoked_us, first_answer)
        open_ones = ~before.guessed & ((1 << started) - 1)
        while open_ones:
            bit = open_ones & -open_ones
            open_ones ^= bit
            state = self._model.step(before.state, self._unknown[bit.bit_length() - 1].action)
            if state is not IMPOSSIBLE and any(
                self._model.step(state, action) is not IMPOSSIBLE for action in impossible
            ):
                yield _Configuration(before.low, before.beyond, before.guessed | bit, state)

    def _next(self, configuration: _Configuration[S]) -> list[tuple[int, Operation[A]]]:
        """The answered operations that may be next, with their places: those that no other one precedes."""
        found: list[tuple[int, Operation[A]]] = []
        first_answer = inf
        for place in self._open_places(configuration):
            operation = self._answered[place]
            if operation.invoked_us > first_answer:
                break
            first_answer = min(first_answer, _answered_us(operation))
            found.append((place, operation))
        return found

    def _open_places(self, configuration: _Configuration[S]) -> Iterator[int]:
        """The places of the answered operations that have not taken effect, in order."""
        taken, place = configuration.beyond, configuration.low
        while place < len(self._answered):
            yield place
            taken >>= 1
            place += 1
            run = (~taken & (taken + 1)).bit_length() - 1  # how many have taken effect next to each other
            taken >>= run
            place += run


def _with(before: _Configuration[S], place: int, state: S) -> _Configuration[S]:
    """After the answered operation at this place."""
    beyond = before.beyond | 1 << (place - before.low)
    run = (~beyond & (beyond + 1)).bit_length() - 1
    return _Configuration(before.low + run, beyond >> run, before.guessed, state)


def _answered_us(operation: Operation[A]) -> float:
    return inf if operation.answered_us is None else operation.answered_us
