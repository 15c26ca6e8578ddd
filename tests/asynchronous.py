"""Tests that are coroutines: each runs in an event loop of its own, together with the worlds that it takes.

``@pytest.mark.loop(new=…)`` chooses the loop, and so does a world that needs one, or a parameter
``new_loop``. A fixture made by :func:`in_loop` is a world: an asynchronous context manager that is entered
in that loop, before the test, and left after it. It takes other fixtures by their names, and options from
``@pytest.mark.world(…)``.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

NewLoop = Callable[[], asyncio.AbstractEventLoop]


@dataclass(frozen=True)
class World:
    begin: Callable[[], AbstractAsyncContextManager[Any]]
    new_loop: NewLoop | None


def in_loop(begin: Callable[..., AbstractAsyncContextManager[Any]], new_loop: NewLoop | None = None) -> Any:
    """The fixture for a world: the first parameters of ``begin``, without a default, are other fixtures."""
    parameters = inspect.signature(begin).parameters.values()
    needed = [one for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]

    def fixture(request: pytest.FixtureRequest, **given: Any) -> World:
        mark = request.node.get_closest_marker("world")
        options = {} if mark is None else mark.kwargs
        return World(partial(begin, **(given | options)), new_loop)

    request, *_ = inspect.signature(fixture).parameters.values()
    fixture.__signature__ = inspect.Signature([request, *needed])  # type: ignore[attr-defined]
    fixture.__doc__ = begin.__doc__
    return pytest.fixture(fixture)


def run(item: pytest.Function) -> None:
    given = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    with asyncio.Runner(loop_factory=_loop_of(item, given)) as runner:
        runner.run(_within_worlds(item.obj, given))


def _loop_of(item: pytest.Function, given: Mapping[str, Any]) -> NewLoop | None:
    if (mark := item.get_closest_marker("loop")) is not None:
        return mark.kwargs["new"]  # type: ignore[no-any-return]
    made = [one.new_loop for one in given.values() if isinstance(one, World) and one.new_loop is not None]
    return made[0] if made else given.get("new_loop")


async def _within_worlds(test: Callable[..., Awaitable[None]], given: dict[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        for name, value in given.items():
            if isinstance(value, World):
                given[name] = await stack.enter_async_context(value.begin())
        await test(**given)
