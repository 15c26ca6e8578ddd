"""Something happens where a client lets others run: at every such place of a scenario, one after another.

A scenario is played once to count its places, and then once for each place and each thing that may happen
there. What must hold afterwards is the scenario's own business. Everything is deterministic, so a failure is
found again by its place.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager


class Places:
    """Counts places, and makes things happen at some: ``events`` by the number of the place, from 0."""

    def __init__(self, events: Mapping[int, Callable[[], object]] | None = None) -> None:
        self.count = 0
        self._events = events or {}

    def watch(self, events: Mapping[int, Callable[[], object]]) -> None:
        """As given to the constructor: for events that are made later."""
        self._events = events

    def reached(self) -> None:
        event = self._events.get(self.count)
        self.count += 1
        if event is not None:
            event()


def plans(name: str, names: Sequence[str], count: int, *, stride: int = 1) -> Iterator[dict[int, str]]:
    """``name`` at each of so many places, alone and with another of ``names`` soon after.

    ``stride``: only at one place in so many, each name at others.
    """
    rng = random.Random(name)
    for place in range(list(names).index(name) % stride, count, stride):
        yield {place: name}
        yield {place: name, place + rng.randrange(1, 12): rng.choice(names)}


@contextmanager
def named(plan: Mapping[int, str]) -> Iterator[None]:
    """A failure says what had happened where."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"at await points: {dict(plan)}")
        raise
