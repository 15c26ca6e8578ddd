"""Two answers to one step, ours and Kafka's: what differs."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from pykraft.jepsen_like.conformance.player import Answer
from pykraft.jepsen_like.conformance.script import Step

NO_ANSWER_YET: Final = "no answer yet"

History: TypeAlias = Sequence[tuple[Step, Answer]]
"""Steps with our answers."""


def part(answer: Answer, name: str) -> list[Any]:
    return list(answer[name]) if isinstance(answer, dict) else []


def paired(ours: Answer, kafka: Answer) -> list[tuple[Any, Any]]:
    """The descriptions of the same groups."""
    both = [sorted(part(answer, "groups"), key=lambda group: group["group_id"]) for answer in (ours, kafka)]
    return list(zip(*both, strict=True))


def code_of(answer: Answer) -> int | None:
    return answer.get("error_code") if isinstance(answer, dict) else None


def codes_of(ours: Any, kafka: Any) -> set[tuple[int, int]]:
    """The pairs of error codes, of the same places, that differ."""
    if isinstance(ours, dict) and isinstance(kafka, dict):
        pairs = set()
        for name in ours.keys() & kafka.keys():
            if name == "error_code" and ours[name] != kafka[name]:
                pairs.add((ours[name], kafka[name]))
            pairs |= codes_of(ours[name], kafka[name])
        return pairs
    if isinstance(ours, list) and isinstance(kafka, list) and len(ours) == len(kafka):
        return (
            set().union(*(codes_of(one, other) for one, other in zip(ours, kafka, strict=True)))
            if ours
            else set()
        )
    return set()


def places_of(ours: Any, kafka: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Where two answers differ: the path of each place (``a.b[].c``) with both values. Lists of different
    lengths, and answers of which one is missing, are one place.
    """
    if isinstance(ours, dict) and isinstance(kafka, dict) and ours.keys() == kafka.keys():
        return [
            place
            for name in ours
            for place in places_of(ours[name], kafka[name], f"{path}.{name}" if path else name)
        ]
    if isinstance(ours, list) and isinstance(kafka, list) and len(ours) == len(kafka):
        return [
            place
            for one, other in zip(ours, kafka, strict=True)
            for place in places_of(one, other, f"{path}[]")
        ]
    return [] if ours == kafka else [(path, ours, kafka)]
