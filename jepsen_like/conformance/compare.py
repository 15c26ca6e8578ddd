"""The first answer that differs, if no chance and no delay explains it.

Kafka lets chance decide some things (who leads a group after its leader left: the next in a hash map of
generated ids), and an answer may be late. So a script whose answers differ is played again on both systems,
with more time; it counts only if no playing of one gives the answers of any playing of the other.
"""

from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Protocol

from pykraft.jepsen_like.conformance.answer_pairs import NO_ANSWER_YET, places_of
from pykraft.jepsen_like.conformance.known.groups import POINTLESS, UNANSWERED, Known
from pykraft.jepsen_like.conformance.player import STILL_WAITS, Event
from pykraft.jepsen_like.conformance.script import Script

FIRST_GRACE_S: Final = 0.02
AGAIN_GRACE_S: Final = (0.1, 0.3, 0.8, *((0.1,) * 16))
"""So often that a choice of one between two, left to chance, is never that of the other once in a million."""


class Player(Protocol):
    """A system that plays scripts."""

    def play(self, script: Script, grace_s: float) -> list[Event]: ...


@dataclass(frozen=True, slots=True)
class Difference:
    script: Script
    at: int
    """The step that was answered differently."""
    ours: Event | None
    theirs: Event | None

    @property
    def last(self) -> int:
        """The last step that it takes to see it."""
        return max([self.at, *(event.after for event in (self.ours, self.theirs) if event is not None)])

    def __str__(self) -> str:
        step = self.script.steps[self.at]
        lines = [
            f"step {self.at}: {step!r}",
            f"  ours:  {_told(self.ours)}",
            f"  Kafka: {_told(self.theirs)}",
        ]
        if self.ours is not None and self.theirs is not None:
            places = places_of(self.ours.answer, self.theirs.answer)
            lines += [f"  {path}: {ours!r}, Kafka: {kafka!r}" for path, ours, kafka in places]
        return "\n".join(lines)


def _told(event: Event | None) -> str:
    if event is None:
        return NO_ANSWER_YET
    return f"{event.answer}" + (f" (after step {event.after})" if event.after != event.step else "")


class Comparison:
    """Plays scripts on both systems. ``met`` counts the known differences that were seen."""

    def __init__(self, ours: Player, kafka: Player, known: tuple[Known, ...]) -> None:
        self._systems = (ours, kafka)
        self._known = known
        self.met: dict[str, int] = {}

    def find(self, script: Script, patience: int = len(AGAIN_GRACE_S)) -> Difference | None:
        """``patience``: how often to play again before a difference counts."""
        ours, theirs = ([system.play(script, FIRST_GRACE_S)] for system in self._systems)
        found = self._first(script, ours[0], theirs[0])
        if found is None:
            return None
        for grace_s in AGAIN_GRACE_S[:patience]:
            for played, system in zip((ours, theirs), self._systems, strict=True):
                played.append(system.play(script, grace_s))
            found = self._first(script, ours[-1], theirs[-1])
            new = [(ours[-1], other) for other in theirs] + [(one, theirs[-1]) for one in ours[:-1]]
            if any(self._first(script, one, other) is None for one, other in new):
                return None
        return found

    def _first(self, script: Script, ours: list[Event], theirs: list[Event]) -> Difference | None:
        ours, theirs = self._without_unanswered(ours, theirs)
        for mine, their in zip_longest(ours, theirs):
            if mine == their:
                continue
            event = min((e for e in (mine, their) if e is not None), key=lambda e: (e.after, e.step))
            if mine is None or their is None or mine.step != their.step:
                # One of them has not answered this step yet.
                mine, their = (mine, None) if event is mine else (None, their)
            earlier = [
                (script.steps[e.step], e.answer) for e in ours if e.after <= event.after and e is not mine
            ]
            answers = [NO_ANSWER_YET if e is None else e.answer for e in (mine, their)]
            step = script.steps[event.step]
            known = next((k for k in self._known if k.explains(earlier, step, *answers)), None)
            if known is None:
                return Difference(script, event.step, mine, their)
            self._note(known.name)
            if known.ends_script:
                return None
        return None

    def _without_unanswered(self, ours: list[Event], theirs: list[Event]) -> tuple[list[Event], list[Event]]:
        """Without waiting requests that have become pointless: Kafka never answers them."""
        silent = {event.step for event in theirs if event.answer == STILL_WAITS}
        answered = {
            event.step
            for event in ours
            if event.step in silent
            and isinstance(event.answer, dict)
            and event.answer["error_code"] in POINTLESS
        }
        if answered:
            self._note(UNANSWERED.name)
        return [e for e in ours if e.step not in answered], [e for e in theirs if e.step not in answered]

    def _note(self, name: str) -> None:
        self.met[name] = self.met.get(name, 0) + 1
