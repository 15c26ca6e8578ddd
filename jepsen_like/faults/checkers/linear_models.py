"""The objects that are checked for linearizability: registers."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pykraft.jepsen_like.faults.checkers.linearizable import IMPOSSIBLE, Impossible, Model, Operation


class Write(NamedTuple):
    """A register takes this value."""

    value: str


class Read(NamedTuple):
    """A register was found to have this value; None: it had never been written."""

    value: str | None


def _use_register(state: str | None, action: Write | Read) -> str | Impossible | None:
    if isinstance(action, Write):
        return action.value
    return state if action.value == state else IMPOSSIBLE


REGISTER: Final[Model[str | None, Write | Read]] = Model(
    None, _use_register, lambda action: isinstance(action, Read)
)


def without_unread(operations: Sequence[Operation[Write | Read]]) -> list[Operation[Write | Read]]:
    """The operations of a register without writes of unknown outcome whose value was never read.

    That changes no verdict: in an order in which such a write takes effect nothing is read until the next
    write does, so the order without it explains as much.
    """
    read = {one.action.value for one in operations if isinstance(one.action, Read)}
    return [one for one in operations if one.answered_us is not None or one.action.value in read]
