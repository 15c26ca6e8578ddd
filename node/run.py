"""Runs nodes on their own event loop until a signal, a supervisor or a fatal fault stops them."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, NamedTuple

from pykraft.configuration.keys import ConfigError
from pykraft.kafka_protocol.compiled_walk import IS_COMPILED
from pykraft.node.config import ServerConfig
from pykraft.node.errors import StartError
from pykraft.node.incarnation import Incarnation, draw_uuid, enter_directories
from pykraft.node.node import Node
from pykraft.node.os_errors import describe
from pykraft.node.stop_signals import handle_stop_signals
from pykraft.node.world import World
from pykraft.runtime.clock import SystemClock, monotonic_us
from pykraft.runtime.directory_lock import DirectoryLock
from pykraft.runtime.disk import Disk
from pykraft.runtime.file_budget import FileBudget
from pykraft.runtime.file_limit import raise_file_limit
from pykraft.runtime.late_grpc import LateGrpcServer, make_grpc_transport
from pykraft.runtime.loggers import ProcessLoggers
from pykraft.runtime.memory import keep_out_of_collection
from pykraft.runtime.network.tcp import StreamRuntime
from pykraft.runtime.os_disk import OsDisk
from pykraft.runtime.own_calls import OwnCalls, OwnFirstTransport
from pykraft.runtime.rpc_limits import ServerLimits, limits_within
from pykraft.runtime.tasks import FatalHandler

logger = logging.getLogger(__name__)

EXIT_FATAL: Final = 1
_STOP_TIMEOUT_AFTER_SUPERVISOR_S: Final = 30


def run_nodes(
    configs: Sequence[ServerConfig],
    on_ready: Callable[[Sequence[Node]], None] | None = None,
    *,
    on_abandon: Callable[[], None] | None = None,
    supervisor: socket.socket | None = None,
) -> int:
    """Start one node per config in this process; returns the exit code once they have all stopped.

    :class:`ConfigError` or :class:`StartError` if one of them refuses to start. ``on_ready`` is called once
    every node serves. A second signal ends the process without an orderly stop, after ``on_abandon``. The
    nodes also stop when the other end of ``supervisor`` is closed.
    """
    locks: list[DirectoryLock] = []
    processes = []
    if not IS_COMPILED:
        logger.info("records are validated in Python, which is slower: the compiled walk is not installed")
    try:
        for config in configs:
            try:
                taken, unusable = lock_directories(config)
                locks += taken
                incarnation = enter_directories(taken, draw_uuid(os.urandom))
            except OSError as error:
                raise StartError(f"node {config.node_id} does not start: {describe(error)}") from None
            processes.append(_Process(config, incarnation, unusable))
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_serve(processes, on_ready, on_abandon, supervisor))
    finally:
        for lock in locks:
            lock.release()


class _Process(NamedTuple):
    """A node to start. ``unusable``: as in :class:`World`."""

    config: ServerConfig
    incarnation: Incarnation
    unusable: Mapping[str, str]


def lock_directories(config: ServerConfig) -> tuple[list[DirectoryLock], dict[str, str]]:
    """Lock the directories that are there; also the reasons for those that cannot be locked.

    :class:`OSError` if that of the metadata log is among them.
    """
    locks, unusable = [], {}
    for path in filter(os.path.isdir, config.all_dirs):
        try:
            locks.append(DirectoryLock(path))
        except OSError as error:
            if path == config.metadata_log_dir:
                for lock in locks:
                    lock.release()
                raise
            unusable[path] = describe(error, path)
    return locks, unusable


def make_world(
    config: ServerConfig,
    fatal: FatalHandler,
    *,
    incarnation: Incarnation | None = None,
    disk: Disk | None = None,
    files: FileBudget | None = None,
    unusable_dirs: Mapping[str, str] | None = None,
    rpc_limits: ServerLimits | None = None,
) -> World:
    """The world of a node in this process: gRPC, threads and the operating system's clocks and randomness."""
    own, make_remote = OwnCalls(), partial(make_grpc_transport, fatal)
    return World(
        disk=disk or OsDisk(files),
        clock=SystemClock(),
        new_rng=random.Random,
        executor=ThreadPoolExecutor,
        rpc_transport=lambda: OwnFirstTransport(own, config.controller_address, make_remote, fatal),
        rpc_server=lambda: LateGrpcServer(own, rpc_limits),
        streams=StreamRuntime(
            asyncio.get_running_loop(),
            sendfile=bool(config.values["pykraft.sendfile"]),
            send_buffer_bytes=config.integer("socket.send.buffer.bytes"),
            receive_buffer_bytes=config.integer("socket.receive.buffer.bytes"),
            files=files,
        ),
        fatal=fatal,
        exclude_from_gc=keep_out_of_collection,
        now_us=monotonic_us,
        incarnation=incarnation or Incarnation(draw_uuid(os.urandom)),
        unusable_dirs=unusable_dirs or {},
        loggers=ProcessLoggers(),
    )


def _halt(error: BaseException) -> None:
    """End the process: a node that cannot trust its disk or its state must not write or respond any more."""
    logger.critical("halting: %s", error, exc_info=error)
    os._exit(EXIT_FATAL)


def _handle_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception of a callback. A failed assertion is a broken state machine, which must not serve."""
    error = context.get("exception")
    if isinstance(error, AssertionError):
        _halt(error)
    loop.default_exception_handler(context)


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop if it is installed: about a fifth less CPU per byte, otherwise the same."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def _serve(
    processes: Sequence[_Process],
    on_ready: Callable[[Sequence[Node]], None] | None,
    on_abandon: Callable[[], None] | None,
    supervisor: socket.socket | None,
) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    failures: list[BaseException] = []

    def abandon() -> None:
        if on_abandon is not None:
            on_abandon()
        os._exit(EXIT_FATAL)

    def handle_signal(name: str) -> None:
        if stop.is_set():
            abandon()  # the second signal: end at once
        logger.info("%s: stopping", name)
        stop.set()

    def handle_end_of_supervisor(channel: socket.socket) -> None:
        loop.remove_reader(channel)
        logger.info("the supervisor has ended: stopping")
        stop.set()
        # A dead supervisor cannot send a second signal.
        loop.call_later(_STOP_TIMEOUT_AFTER_SUPERVISOR_S, abandon)

    loop.set_exception_handler(_handle_loop_exception)
    handle_stop_signals(loop, handle_signal)
    if supervisor is not None:
        loop.add_reader(supervisor, handle_end_of_supervisor, supervisor)
    nodes = _make_nodes(processes)
    started: list[Node] = []
    web = AsyncExitStack()
    try:
        for one, node in zip(processes, nodes, strict=True):
            if one.config.http_listener is not None:
                from pykraft.node.web.server import serve_http  # a node without it starts sooner

                serve_http(one.config, node, web)
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                started.append(node)
                group.create_task(until_stopped(node.start(), stop))
        if on_ready is not None and not stop.is_set():
            on_ready(nodes)
        await stop.wait()
    except* (ConfigError, StartError) as errors:
        failures.extend(errors.exceptions)
    finally:
        failures += await _stop_nodes(started)
        await web.aclose()
    if not failures:
        return 0
    if isinstance(failures[0], ConfigError | StartError):
        raise failures[0]
    logger.critical("a node failed to stop in order", exc_info=failures[0])
    return EXIT_FATAL


def _make_nodes(processes: Sequence[_Process]) -> list[Node]:
    """Within the files that this process may have open."""
    files_limit, servers = raise_file_limit(), sum(one.config.is_controller for one in processes)
    rpc_limits = limits_within(files_limit, servers)
    files = FileBudget(files_limit, servers * rpc_limits.connections)
    return [
        Node(
            one.config,
            make_world(
                one.config,
                _halt,
                incarnation=one.incarnation,
                files=files,
                unusable_dirs=one.unusable,
                rpc_limits=rpc_limits,
            ),
        )
        for one in processes
    ]


async def _stop_nodes(nodes: Sequence[Node]) -> list[BaseException]:
    failures: list[BaseException] = []
    # No controller stops before the last broker has handed over, because that broker needs a quorum.
    for steps in ([node.hand_over for node in nodes], [node.stop for node in nodes]):
        outcomes = await asyncio.gather(*(step() for step in steps), return_exceptions=True)
        failures.extend(outcome for outcome in outcomes if outcome is not None)
    return failures


async def until_stopped(starting: asyncio.Future[None] | object, stop: asyncio.Event) -> None:
    """Wait for a start, but abandon it when the process is asked to stop."""
    assert asyncio.iscoroutine(starting)
    start = asyncio.ensure_future(starting)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([start, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        # Also if another node refused to start: a node must not continue to start while it is being stopped.
        stopping.cancel()
        if not start.done():
            start.cancel()
            await asyncio.wait([start])
    if not start.cancelled():
        start.result()
