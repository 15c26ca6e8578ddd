"""The walk over the records of a batch, by the compiled loop where it is installed.

Wheels have it, and a source installation with a C compiler. Without it :class:`RecordWalk` does the same in
Python, which is also what tests hold the compiled one against.
"""

from __future__ import annotations

from pykraft.kafka_protocol.primitives import Buffer
from pykraft.kafka_protocol.record_walk import (
    MAX_REJECTED_RECORDS,
    RecordRules,
    RecordWalk,
    RejectedRecord,
    malformed,
)

try:
    from pykraft.kafka_protocol import _record_walk
except ImportError:  # no wheel for this platform, and no compiler
    IS_COMPILED = False
else:
    IS_COMPILED = True

_STEPS_PER_WORK = 16
"""Records or headers that are read in C while Python reads one record; fewer than in fact."""

_MOST_STEPS = (1 << 63) - 1


class CompiledRecordWalk(RecordWalk):
    """:class:`RecordWalk` with its loop in C."""

    __slots__ = ()

    def _continue(self, work: int) -> int:
        state = self._index, self._position, self._headers_left, self._end, self.greatest_delta
        rules = self._rules
        found: list[tuple[int, bool, int]] = []
        try:
            state, steps = _record_walk.advance(
                self._body,
                self._count,
                state,
                (rules.requires_keys, rules.least_delta, rules.greatest_delta, rules.exempt_delta),
                min(work * _STEPS_PER_WORK, _MOST_STEPS),
                found,
                MAX_REJECTED_RECORDS - len(self.rejected),
            )
        except ValueError as error:
            raise malformed(str(error)) from None
        self._index, self._position, self._headers_left, self._end, self.greatest_delta = state
        if found:
            self.rejected += map(RejectedRecord._make, found)
        return -(-steps // _STEPS_PER_WORK)


def begin_walk(body: Buffer, record_count: int, rules: RecordRules) -> RecordWalk:
    """The fastest walk there is; see :class:`RecordWalk`."""
    walk = CompiledRecordWalk if IS_COMPILED else RecordWalk
    return walk(body, record_count, rules)
