"""See ``_record_walk.c``."""

from pykraft.kafka_protocol.primitives import Buffer
from pykraft.kafka_protocol.record_walk import RecordRules

State = tuple[int, int, int, int, int]
"""Index of the next record, position, headers left of the record before, its end, greatest delta."""

def advance(
    body: Buffer,
    count: int,
    state: State,
    rules: RecordRules,
    steps: int,
    rejected: list[tuple[int, bool, int]],
    most_rejected: int,
    /,
) -> tuple[State, int]: ...
