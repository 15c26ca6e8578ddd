"""What an audit uses of Spark, on lists; what crosses to another process is pickled."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

PARTITIONS = 2


class Lists:
    """A distributed list: one list for each partition."""

    def __init__(self, partitions: Sequence[list[Any]], log: list[str]) -> None:
        self._partitions = partitions
        self._log = log

    def flatMap(self, step: Callable[[Any], Iterable[Any]]) -> "Lists":
        return self.mapPartitions(lambda items: (one for item in items for one in step(item)), step)

    def mapPartitions(
        self, step: Callable[[Iterator[Any]], Iterable[Any]], sent: Callable[..., Any] | None = None
    ) -> "Lists":
        pickle.dumps(sent or step)
        found = [list(step(iter(_copied(items)))) for items in self._partitions]
        return Lists([_copied(items) for items in found], self._log)

    def groupByKey(self, count: int, partition_of: Callable[[Any], int]) -> "Lists":
        assert count >= 1
        groups: list[dict[Any, list[Any]]] = [{} for _ in range(count)]
        for key, value in (pair for items in self._partitions for pair in items):
            groups[partition_of(key) % count].setdefault(key, []).append(value)
        self._log.append(f"grouped in {count}")
        return Lists([list(group.items()) for group in groups], self._log)

    def persist(self, level: object) -> "Lists":
        self._log.append("persisted")
        return self

    def unpersist(self) -> None:
        self._log.append("unpersisted")

    def collect(self) -> list[Any]:
        return [one for items in self._partitions for one in items]


class Session:
    """``log``: what was asked for, where that is no matter of results."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.defaultParallelism = PARTITIONS

    @property
    def sparkContext(self) -> "Session":
        return self

    def parallelize(self, items: Sequence[Any], count: int) -> Lists:
        assert count >= 1
        self.log.append(f"{len(items)} tasks in {count}")
        return Lists([list(items[at::count]) for at in range(count)], self.log)

    def stop(self) -> None:
        self.log.append("stopped")


def _copied(items: list[Any]) -> list[Any]:
    copy: list[Any] = pickle.loads(pickle.dumps(items))
    return copy
