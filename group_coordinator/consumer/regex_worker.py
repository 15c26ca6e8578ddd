"""Finds the topics that regular expressions of groups match, in slices that the event loop hardly notices.

One slice of one group per turn of the loop, the groups in rotation: an expensive pattern delays the result of
its own group, not those of others and not the loop. Works on the image of the moment at which a heartbeat
asked, and holds no state of groups: what was found is handed to the coordinator, which decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from pykraft.group_coordinator.state.records import ResolvedRegex
from pykraft.group_coordinator.state.result import Resolution
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.regex.pattern import RegexError, known_pattern
from pykraft.runtime.tasks import TaskSupervisor

logger = logging.getLogger(__name__)

SLICE_WORK = 3_000
"""Steps of automatons in one turn: some milliseconds. A single character of a name may take more, up to
twice the largest program."""

Owner: TypeAlias = tuple[object, str]
"""The shard of a group, and its id."""

Found: TypeAlias = Mapping[str, ResolvedRegex]
OnFound: TypeAlias = Callable[[Found], None]


class RegexWorker:
    """One resolution at a time for each ``owner``; a request during one is ignored."""

    def __init__(self, tasks: TaskSupervisor) -> None:
        self._tasks = tasks
        self._waiting: deque[tuple[Owner, Iterator[int], dict[str, ResolvedRegex], OnFound]] = deque()
        self._owners: set[Owner] = set()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._owners)

    def resolve(self, owner: Owner, resolution: Resolution, topics: TopicsView, on_found: OnFound) -> None:
        if owner in self._owners:
            return
        self._owners.add(owner)
        found: dict[str, ResolvedRegex] = {}
        self._waiting.append((owner, _find(resolution, topics, found), found, on_found))
        if self._task is None or self._task.done():
            self._task = self._tasks.start(self._run(), "group-coordinator-regexes")

    def forget(self, is_gone: Callable[[Owner], bool]) -> None:
        """Give up the resolutions of owners that are gone."""
        self._waiting = deque(one for one in self._waiting if not is_gone(one[0]))
        self._owners = {one[0] for one in self._waiting}

    async def _run(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)
            if not self._waiting:
                return
            has_failed = False
            try:
                if not self._take_slice():
                    continue
            except Exception:  # a bug costs this resolution; a later heartbeat asks again
                logger.exception("regular expressions of group %s", self._waiting[-1][0][1])
                has_failed = True
            owner, _, found, on_found = self._waiting.pop()
            self._owners.discard(owner)
            if not has_failed:
                on_found(found)

    def _take_slice(self) -> bool:
        """Work on the first in the queue, and move it to the end; whether it is finished."""
        self._waiting.rotate(-1)
        left = SLICE_WORK
        for work in self._waiting[-1][1]:
            left -= work
            if left <= 0:
                return False
        return True


def _find(resolution: Resolution, topics: TopicsView, found: dict[str, ResolvedRegex]) -> Iterator[int]:
    """Fill ``found``; yields how many steps each piece of the work took."""
    for regex in resolution.regexes:
        try:
            pattern = known_pattern(regex).copy()
        except RegexError:
            pattern = None  # refused when it was sent, but a record could hold one
        matched: list[str] = []
        for name in topics.image.topic_ids if pattern is not None else ():
            if pattern is not None and (yield from pattern.matching(name)):
                matched.append(name)  # noqa: PERF401 - a comprehension cannot yield
        found[regex] = ResolvedRegex(tuple(sorted(matched)), topics.image.offset, resolution.asked_ms)


def resolve_now(resolution: Resolution, topics: TopicsView) -> Found:
    """The whole work at once, for those who have the time."""
    found: dict[str, ResolvedRegex] = {}
    for _ in _find(resolution, topics, found):
        pass
    return found
