"""Whole quorum nodes under faults in virtual time: ``--ring quorum_nodes`` of the simulation.

The same invariants as for the core alone (:mod:`.quorum.ring`), and those of delivery, with the parts that
the core's simulation leaves out: the driver with its queue of effects and flushes in an executor, the log
with its segments, the state file, the bytes on the wire. A schedule costs more, so there are fewer.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from pykraft.jepsen_like.simulation.quorum.narrator import Narrator, describe_options
from pykraft.jepsen_like.simulation.quorum_nodes.cluster import NodeCluster
from pykraft.jepsen_like.simulation.quorum_nodes.nemesis import NodesNemesis
from pykraft.jepsen_like.simulation.quorum_nodes.plan import PARTS, draw_plan, planned
from pykraft.jepsen_like.simulation.schedule import Outcome, Ring, Schedule
from pykraft.jepsen_like.simulation.story import Story
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.runtime.simulated.processes import ProcessKilledError
from pykraft.runtime.simulated.virtual_loop import VirtualLoop

PROGRESS_WITHIN_S = 6.0


def run_schedule(schedule: Schedule, story: Story | None = None) -> Outcome:
    """Run one schedule; raises the errors of the invariants, and an error that halted a node."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(_run(schedule, story, loop))
    finally:
        loop.close()


async def _run(schedule: Schedule, story: Story | None, loop: VirtualLoop) -> Outcome:
    plan = draw_plan(schedule)
    cluster = NodeCluster(schedule.seed, plan, loop)
    if story is not None:
        story.preface.append(describe_options(plan.options))
        cluster.narrator = Narrator(story)

    def on_error(_: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, ProcessKilledError):
            cluster.failed(error or RuntimeError(context["message"]))

    loop.set_exception_handler(on_error)
    for process in cluster.processes.values():
        cluster.run(process.start())
    if "client" not in schedule.without:
        cluster.client_turn()
    nemesis = NodesNemesis(cluster, plan)
    nemesis.start()
    await _let_pass(cluster, schedule.duration_ms / 1000, lambda: False)
    nemesis.stop()
    if "client" in schedule.without:
        cluster.client_turn()
    cluster.set_goal()
    if not await _let_pass(cluster, PROGRESS_WITHIN_S, cluster.has_caught_up):
        raise InvariantViolation(
            "progress", "after healing not every listener follows a leader and has a new value"
        )
    cluster.check_everything()
    return Outcome(
        schedule.seed,
        cluster.events,
        round(loop.now_s * 1000),
        cluster.trace.hexdigest(),
        dict(cluster.injected),
        {
            "acknowledged": len(cluster.acknowledged),
            "led epochs": len(cluster.led_epochs),
            "restarts": sum(process.incarnation - 1 for process in cluster.processes.values()),
        },
        len(plan.faults),
    )


async def _let_pass(cluster: NodeCluster, duration_s: float, until: Callable[[], bool]) -> bool:
    end_s = cluster.loop.now_s + duration_s
    while not until():
        await asyncio.sleep(0.01)
        if cluster.error is not None:
            raise cluster.error
        if cluster.loop.now_s >= end_s:
            return False
    return True


RING = Ring(
    name="quorum_nodes",
    run=run_schedule,
    share=0.5,
    parts=PARTS,
    planned=planned,
    longest_ms=5_000,  # after each loss everything that was committed is compared: long schedules cost more
)
