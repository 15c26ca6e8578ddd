"""Whole nodes under faults in virtual time: ``python -m pykraft.jepsen_like.simulation --ring cluster``.

One schedule: a cluster of the product's controllers and brokers starts, clients send requests, faults occur;
then all faults are ended, and within :func:`progress_within_ms` there must be one active controller, every
broker unfenced, a topic created and seen by all, and all images equal.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pykraft.coordinator.partitioning import OFFSETS_TOPIC
from pykraft.jepsen_like.simulation.cluster.checks.leadership import (
    find_leaderless,
    find_unfinished,
    has_preferred_leaders,
)
from pykraft.jepsen_like.simulation.cluster.clients.directories import MOVES_WITHIN_MS
from pykraft.jepsen_like.simulation.cluster.clients.load import WORKLOADS, Load
from pykraft.jepsen_like.simulation.cluster.clients.throttles import STAYS_IN_SYNC, InSyncReplicas
from pykraft.jepsen_like.simulation.cluster.clients.topics import Clients
from pykraft.jepsen_like.simulation.cluster.describe import describe_world, log_history
from pykraft.jepsen_like.simulation.cluster.faults.dead_broker import DeadBrokerWatch
from pykraft.jepsen_like.simulation.cluster.faults.lease_race import is_stable
from pykraft.jepsen_like.simulation.cluster.faults.planned import ClusterNemesis, plan_faults
from pykraft.jepsen_like.simulation.cluster.options import WorldOptions
from pykraft.jepsen_like.simulation.cluster.requests import TIMEOUT_MS
from pykraft.jepsen_like.simulation.cluster.world import World, make_loop
from pykraft.jepsen_like.simulation.schedule import Outcome, Ring, Schedule
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.runtime.simulated.processes import ProcessKilledError

if TYPE_CHECKING:
    from pykraft.broker.replicas.partition.partition import Partition
    from pykraft.jepsen_like.simulation.cluster.node import SimNode
    from pykraft.jepsen_like.simulation.story import Story

LAST_TOPIC = "the-last-topic"
DISK_EVERY_MS = 3000
"""How often a copy of some machine's disk is opened, in addition to those of machines that crash."""
BALANCED_WITHIN_MS = 25_000
"""More than the interval in which the controller checks the balance of leaders."""
LOG_STARTS_WITHIN_MS = 5000
THROTTLED_MS = 2000
"""In addition to the time that a follower may lag."""
LOAD_WITHIN_MS = 300_000
"""More than all limits of a workload together: an operation that is late is in its history."""


def progress_within_ms(options: WorldOptions) -> int:
    """A session must expire before a broker's next process is accepted; the rest is for elections."""
    return 2 * options.session_ms + 12_000


def run_schedule(schedule: Schedule, story: Story | None = None) -> Outcome:
    """Raises whatever the invariants, or the assertions of the product, raise."""
    loop = make_loop(schedule.seed)
    world = World(schedule.seed, loop, story, schedule.workload)
    # Garbage collection runs code, and its time depends on more than the seed.
    collects = gc.isenabled()
    gc.disable()
    try:
        return loop.run_until_complete(_run(world, schedule))
    finally:
        _discard_world(world)
        if collects:
            gc.enable()


async def _run(world: World, schedule: Schedule) -> Outcome:
    world.loop.set_exception_handler(lambda _, context: _on_error(world, context))
    for node in world.nodes.values():
        world.later(node.rng.randrange(300), node.start)
    clients = Clients(world)
    if "client" not in schedule.without:
        clients.start()
    load = None if "load" in schedule.without else Load(world)
    try:
        return await _run_faults(world, schedule, clients, load)
    finally:
        if world.story is not None:
            world.story.nodes = len(world.nodes)
            world.story.preface.append(describe_world(world.options))
            world.story.history = load.history.events if load is not None else ()
            log_history(world.story, world.story.history)


async def _run_faults(world: World, schedule: Schedule, clients: Clients, load: Load | None) -> Outcome:
    if load is not None:
        load.start()
    nemesis = ClusterNemesis(world, schedule, clients.change_voters)
    DeadBrokerWatch(world)
    _look_at_disks(world, 0)
    await _wait_until(world, schedule.duration_ms, lambda: False)
    fences_during_faults = world.checker.fences
    clients.stop()
    nemesis.heal()
    await _demand_progress(world, clients, load)
    world.checker.everything_agrees()
    await _compare_log_starts(world)
    if world.options.log_dirs > 1:
        await _compare_directories(world, clients)
    for broker in world.brokers:
        broker.check_replicas()
    for machine in world.nodes.values():
        machine.check_disk(power_fails=True)
    if world.error is not None:
        raise world.error
    checker = world.checker
    done = load.check_history() if load is not None else Counter()
    return Outcome(
        seed=schedule.seed,
        events=world.events + sum(node.disk.writes for node in world.nodes.values()),
        virtual_ms=int(world.loop.now_s * 1000),
        trace=world.trace.hexdigest()[:16],
        faults=dict(world.injected),
        counts={
            "commits": checker.end_offset,
            "active controllers": len(checker.active),
            "answers": checker.acknowledged,
            "refusals": checker.refused,
            "changes confirmed to clients": clients.requests.confirmed,
            "fences": checker.fences,
            "fences during faults": fences_during_faults,
            "snapshots loaded": checker.snapshots_loaded,
            "clients served": checker.served,
            "reads served by followers": checker.follower_reads.served,
            "unreplicated writes taken": checker.taken_writes,
            "voter changes": world.voter_watch.changes,
            "records committed": checker.data.committed,
            "partitions exempted": checker.data.exempted,
            "group logs compared": checker.groups.replays,
            "group convergences timed": checker.groups.convergences,
            "disks opened after a crash": sum(node.disks_checked for node in world.nodes.values()),
            **done,
        },
        planned=len(nemesis.plan),
    )


async def _demand_progress(world: World, clients: Clients, load: Load | None) -> None:
    limit_ms = progress_within_ms(world.options)
    began_s = world.loop.now_s

    def left_ms() -> float:
        return limit_ms - (world.loop.now_s - began_s) * 1000

    def serves() -> bool:
        return is_stable(world)

    def created() -> bool:
        return all(
            LAST_TOPIC in image.topic_ids and image.offset == world.checker.end_offset - 1
            for node in world.nodes.values()
            for image in node.parts.images
        )

    if not await _wait_until(world, left_ms(), serves):
        raise _stuck(world, "not every broker serves", limit_ms)
    began_s += await _scrub(world)
    if not await _wait_until(world, left_ms(), serves):
        raise _stuck(world, "not every broker serves after its logs were scrubbed", limit_ms)
    began_s += await _clear_settings(world, clients)
    if not await _wait_until(world, left_ms(), lambda: find_unfinished(world.checker.model) is None):
        raise _stuck(world, f"{find_unfinished(world.checker.model)} is not complete", limit_ms)
    began_s += await _throttle_in_sync(world, clients)
    if load is not None:
        await _elect_the_last(world, clients, left_ms())
        began_s += await _end(world, load)

    async def create(node: SimNode) -> None:
        await clients.create(node, LAST_TOPIC)

    done = False
    while not done and left_ms() > 0:
        clients.requests.begin(world.brokers[0], create)
        done = await _wait_until(world, min(left_ms(), 2000), created)
    if not done:
        raise _stuck(world, "a new topic does not reach every node", limit_ms)
    if not await _wait_until(world, left_ms(), lambda: world.voter_watch.agree):
        raise _stuck(world, f"voters do not agree: {world.voter_watch.description}", limit_ms)


async def _scrub(world: World) -> float:
    """Let every broker read its logs once more, to find damage; returns the seconds that this took."""
    began_s = world.loop.now_s
    scrubbing = [broker.scrub() for broker in world.brokers]
    if not await _wait_until(world, LOAD_WITHIN_MS, lambda: all(task.done() for task in scrubbing)):
        raise _stuck(world, "the scrub of the logs does not come to its end", LOAD_WITHIN_MS)
    return world.loop.now_s - began_s


async def _throttle_in_sync(world: World, clients: Clients) -> float:
    """Throttle replicas that are all in sync, for some time; returns the seconds that this took."""
    if not world.options.throttles or world.seed % 2:
        return 0.0
    began_s = world.loop.now_s
    throttles = clients.throttles
    ask = partial(clients.requests.begin, world.brokers[0], throttles.throttle_everything)
    await _ask_until(world, ask, lambda: throttles.are_strictest, "no throttle is set")
    in_sync = InSyncReplicas(world.checker.model)
    await _wait_until(world, world.options.lag_ms + THROTTLED_MS, lambda: False)
    starved = in_sync.find_starved()
    if starved is not None:
        raise InvariantViolation(STAYS_IN_SYNC, starved)
    await _clear_settings(world, clients)
    return world.loop.now_s - began_s


async def _clear_settings(world: World, clients: Clients) -> float:
    """Lift the limits that administrators have set; returns the seconds that this took."""
    settings = clients.settings
    ask = partial(clients.requests.begin, world.brokers[0], settings.clear)
    return await _ask_until(world, ask, lambda: settings.is_clear, "settings are not removed")


async def _ask_until(
    world: World, ask: Callable[[], object], is_done: Callable[[], bool], problem: str
) -> float:
    """Ask again every second until it is done; returns the seconds that this took."""
    began_s = world.loop.now_s
    while not is_done():
        ask()
        await _wait_until(world, 1000, is_done)
        if (world.loop.now_s - began_s) * 1000 > LOAD_WITHIN_MS:
            raise _stuck(world, problem, LOAD_WITHIN_MS)
    return world.loop.now_s - began_s


async def _compare_directories(world: World, clients: Clients) -> None:
    find = clients.directories.find_unfinished
    if not await _wait_until(world, MOVES_WITHIN_MS, lambda: find() is None):
        raise _stuck(world, f"not done: {find()}", MOVES_WITHIN_MS)
    checked, began_s = clients.directories.checked, world.loop.now_s
    while len(checked) < len(world.brokers):
        if (world.loop.now_s - began_s) * 1000 > TIMEOUT_MS:
            clients.directories.fail()
            raise _stuck(world, "not every broker describes its directories", TIMEOUT_MS)
        for broker in world.brokers:
            if broker.id not in checked:
                clients.requests.begin(broker, clients.directories.check)
        await _wait_until(world, 1000, lambda: len(checked) == len(world.brokers))


async def _compare_log_starts(world: World) -> None:
    """Every replica stores the log start that its leader has now."""
    wanted = {
        (partition.topic_id, partition.index): partition.log.log_start_offset
        for partition in _replicas(world)
        if partition.is_leader
    }

    def find_behind() -> list[Partition]:
        return [
            partition
            for partition in _replicas(world)
            if partition.log.stored_log_start_offset < wanted.get((partition.topic_id, partition.index), 0)
        ]

    if not await _wait_until(world, LOG_STARTS_WITHIN_MS, lambda: not find_behind()):
        behind = find_behind()[0]
        stored, start = behind.log.stored_log_start_offset, wanted[behind.topic_id, behind.index]
        what = f"a replica of {behind} has stored the log start {stored}, its leader's is {start}"
        raise _stuck(world, what, LOG_STARTS_WITHIN_MS)


def _replicas(world: World) -> Iterator[Partition]:
    for broker in world.brokers:
        if broker.parts.replicas is not None:
            yield from broker.parts.replicas.table


async def _elect_the_last(world: World, clients: Clients, limit_ms: float) -> None:
    """Do not wait for replicas whose disks are lost."""
    world.checker.is_given_up = True
    led, limit_s = False, world.loop.now_s + limit_ms / 1000
    while not led and world.loop.now_s < limit_s:
        clients.requests.begin(world.brokers[0], clients.admins.elect_the_last)
        led = await _wait_until(world, 2000, lambda: find_leaderless(world.checker.model) is None)
    if not led:
        raise _stuck(world, f"no replica leads {find_leaderless(world.checker.model)}", int(limit_ms))


async def _end(world: World, load: Load) -> float:
    """Let the workload finish, within its own limits; returns the seconds that it took."""
    began_s = world.loop.now_s
    # A coordinator that moves later waits for the sessions of members once more.
    await _wait_until(
        world, BALANCED_WITHIN_MS, lambda: has_preferred_leaders(world.checker.model, OFFSETS_TOPIC)
    )
    ending = load.finish()
    if not await _wait_until(world, LOAD_WITHIN_MS, ending.done):
        if not load.hangs_after_a_loss:
            raise _stuck(world, "the workload does not end", LOAD_WITHIN_MS)
        ending.cancel()
    return world.loop.now_s - began_s


def _stuck(world: World, what: str, limit_ms: int) -> InvariantViolation:
    parts = []
    for node in world.nodes.values():
        lifecycle = node.parts.lifecycle
        state = "" if lifecycle is None else f" {lifecycle.state.name}"
        fenced = lifecycle is not None and lifecycle.is_fenced
        active = node in world.active
        dead = not node.alive
        parts.append(f"{node.id}{state}{' fenced' * fenced}{' active' * active}{' dead' * dead}")
    return InvariantViolation("progress", f"{what} {limit_ms} ms after healing: {', '.join(parts)}")


def _look_at_disks(world: World, number: int) -> None:
    """Check copies of the disks, one after the other, as if power failed while processes write."""
    machines = list(world.nodes.values())
    machines[number % len(machines)].check_disk(power_fails=True)
    world.later(DISK_EVERY_MS, _look_at_disks, world, number + 1)


async def _wait_until(world: World, for_ms: float, until: Callable[[], bool]) -> bool:
    end_s = world.loop.now_s + for_ms / 1000
    while not until():
        await asyncio.sleep(0.02)
        if world.error is not None:
            raise world.error
        if world.loop.now_s >= end_s:
            return False
    return True


def _on_error(world: World, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if not isinstance(error, ProcessKilledError):
        world.failed(error or RuntimeError(context["message"]))


def _discard_world(world: World) -> None:
    """Drop the tasks of dead processes without warnings."""
    world.loop.set_exception_handler(lambda _, context: None)
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        for process in world.processes:
            for task in process.tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        world.loop.close()
        world.nodes.clear()
        world.processes.clear()
        gc.collect()
    finally:
        sys.unraisablehook = hook


RING = Ring(
    name="cluster",
    run=run_schedule,
    share=0.1,
    parts=("client", "load"),
    workloads=WORKLOADS,
    planned=lambda seed, duration_ms: len(plan_faults(seed, duration_ms)),
)
