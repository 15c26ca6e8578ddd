"""What can only wait in vain is refused at once, with the cause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def blocking(method: Callable[P, T]) -> Callable[P, T]:
    """A method that waits. :class:`RuntimeError` on the thread of a running event loop, which it would stop:
    what it waits for may well have to happen there."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if asyncio._get_running_loop() is not None:
            raise RuntimeError(
                f"{method.__name__}() waits, and would stop the event loop that runs in this thread: use the"
                f" fixture kafka_async, or `async with Cluster() as cluster`, and await {method.__name__}()"
            )
        return method(*args, **kwargs)

    return call
