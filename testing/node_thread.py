"""One node on an event loop in a thread of its own, for tests: no process, no signal handlers, no exit."""

import asyncio
import logging
import os
import resource
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from typing import NoReturn

from pykraft.kafka_protocol.connection import RequestHandler
from pykraft.node.config import ServerConfig
from pykraft.node.errors import StartError
from pykraft.node.incarnation import draw_uuid, enter_directories
from pykraft.node.node import Node
from pykraft.node.run import lock_directories, make_world, new_loop, until_stopped
from pykraft.node.web.server import serve_http
from pykraft.node.world import World
from pykraft.runtime.clock import Clock
from pykraft.runtime.file_budget import FileBudget

logger = logging.getLogger(__name__)

AroundRequests = Callable[[RequestHandler], RequestHandler]
"""Makes of a broker's own handler of requests the one that its listeners call."""


class NodeFailedError(RuntimeError):
    """A fault that a node cannot survive: with a process of its own it would have ended that."""


class NodeThread:
    """A node that may be started and ended any number of times. For one caller at a time."""

    def __init__(self, config: ServerConfig, clock: Clock, around_requests: AroundRequests) -> None:
        self.node_id = config.node_id
        self._config = config
        self._clock = clock
        self._around_requests = around_requests
        self._life: _Life | None = None

    @property
    def running(self) -> bool:
        """A paused node runs; one that has failed does not."""
        return self._life is not None and self._life.thread.is_alive()

    @property
    def paused(self) -> bool:
        return self._life is not None and not self._life.may_go_on.is_set()

    def begin(self) -> Future[None]:
        """Start it; the future is done when it serves, or holds why it does not."""
        assert not self.running, f"node {self.node_id} runs already"
        self._life = _Life(self._config, self._clock, self._around_requests)
        self._life.thread.start()
        return self._life.started

    def stop(self) -> bool:
        """Hand over, and stop. Whether it has done so in order."""
        return self._end(hands_over=True)

    def kill(self) -> None:
        """Hand nothing over: the others learn of it when its session has expired."""
        self._end(hands_over=False)

    def pause(self) -> None:
        """Its event loop stands still, as with SIGSTOP, until :meth:`resume`."""
        if self._life is not None:
            self._life.pause()

    def resume(self) -> None:
        if self._life is not None:
            self._life.may_go_on.set()

    def _end(self, *, hands_over: bool) -> bool:
        life, self._life = self._life, None
        return life is None or life.end(hands_over=hands_over)


class _Life:
    """From one start to the end after it."""

    def __init__(self, config: ServerConfig, clock: Clock, around_requests: AroundRequests) -> None:
        self._config = config
        self._clock = clock
        self._around_requests = around_requests
        self._hands_over = True
        self._failed = False
        self._loop = new_loop()
        self._end = asyncio.Event()
        self.started: Future[None] = Future()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.thread = threading.Thread(target=self._main, name=f"pykraft-node-{config.node_id}", daemon=True)

    def end(self, *, hands_over: bool) -> bool:
        """Returns when everything is closed: whether it had not failed."""
        self._hands_over = hands_over and not self._failed
        self.may_go_on.set()
        self._call(self._end.set)
        self.thread.join()
        return not self._failed

    def pause(self) -> None:
        stands_still = threading.Event()

        def stand_still() -> None:
            stands_still.set()
            self.may_go_on.wait()

        self.may_go_on.clear()
        self._call(stand_still)
        while self.thread.is_alive() and not stands_still.wait(0.05):
            pass

    def _call(self, function: Callable[[], object]) -> None:
        """On the loop, unless it has ended."""
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            logger.debug("node %d has ended already", self._config.node_id)

    def _main(self) -> None:
        try:
            with ExitStack() as locks, asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._live(locks))
        except BaseException as error:
            self._failed = True
            if self.started.done():
                logger.error("node %d ended", self._config.node_id, exc_info=error)
            else:
                self.started.set_exception(error)

    async def _live(self, locks: ExitStack) -> None:
        node = Node(self._config, self._make_world(locks))
        web = AsyncExitStack()
        try:
            serve_http(self._config, node, web)
            await until_stopped(node.start(), self._end)
            if self._end.is_set():
                raise StartError(f"node {self._config.node_id} was ended before it had started")
            self.started.set_result(None)
            await self._end.wait()
        except BaseException:
            self._hands_over = False
            raise
        finally:
            await (node.stop() if self._hands_over else node.abandon())
            await web.aclose()

    def _make_world(self, locks: ExitStack) -> World:
        config = self._config
        try:
            taken, unusable = lock_directories(config)
            for lock in taken:
                locks.callback(lock.release)
            incarnation = enter_directories(taken, draw_uuid(os.urandom))
        except OSError as error:
            raise StartError(f"node {config.node_id} does not start: {error}") from error
        world = make_world(
            config,
            self._fail,
            incarnation=incarnation,
            files=FileBudget(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
            unusable_dirs=unusable,
        )
        return replace(
            world,
            clock=self._clock,
            exclude_from_gc=lambda: None,  # the objects of the test are none of the node's business
            around_requests=self._around_requests,
        )

    def _fail(self, error: BaseException) -> NoReturn:
        """Also called from the node's worker threads."""
        logger.critical("node %d fails: %s", self._config.node_id, error, exc_info=error)
        self._failed = True
        self._hands_over = False
        self._call(self._end.set)
        raise NodeFailedError(str(error)) from error
