"""Deadlines of waiting requests: none expires early, none more than a bucket late."""

import pytest

from pykraft.broker.replicas.partition.purgatory import BUCKET_MS, Deadlines


class Operation:
    """An operation that remembers when it expired; ``now_ms`` is the test's clock."""

    now_ms = 0

    def __init__(self) -> None:
        self.bucket = 0
        self.expired_ms: int | None = None

    def expire(self) -> None:
        assert self.expired_ms is None
        self.expired_ms = Operation.now_ms


@pytest.mark.parametrize("deadline_ms", [1, BUCKET_MS - 1, BUCKET_MS, BUCKET_MS + 1, 1000, 1005])
def test_operation_expires_within_one_bucket_after_its_deadline(deadline_ms: int) -> None:
    deadlines, operation = Deadlines(), Operation()
    deadlines.add(operation, deadline_ms)
    for Operation.now_ms in range(deadline_ms + 2 * BUCKET_MS):
        assert deadlines.expire(Operation.now_ms)
    assert operation.expired_ms is not None
    assert deadline_ms <= operation.expired_ms <= deadline_ms + BUCKET_MS
    assert deadlines.next_ms is None


def test_operation_that_completed_does_not_expire() -> None:
    deadlines, operation = Deadlines(), Operation()
    deadlines.add(operation, 5)
    deadlines.remove(operation)
    assert deadlines.next_ms is None
    assert deadlines.expire(1000) and operation.expired_ms is None
