"""See ``_record_walk.c``."""

from pykraft.kafka_protocol.primitives import Buffer

State = tuple[int, int, int, int, int]
"""Index of the next record, position, headers left of the record before, its end, greatest delta."""

Rules = tuple[bool, int, int, int]
"""As the fields of ``RecordRules``."""

def advance(
    body: Buffer,
    count: int,
    state: State,
    rules: Rules,
    steps: int,
    rejected: list[tuple[int, bool, int]],
    most_rejected: int,
    /,
) -> tuple[State, int]: ...
