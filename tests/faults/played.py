"""A workload that is played in virtual time, against clients that a test has made."""

import asyncio
from collections.abc import Callable, Sequence

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.history import examine
from pykraft.jepsen_like.faults.history import Event, MemoryHistory
from pykraft.jepsen_like.faults.workloads.workload import Limits, Workload
from pykraft.runtime.simulated.virtual_loop import VirtualLoop


def play(name: str, make: Callable[[MemoryHistory], Workload], run_s: float) -> list[Event]:
    """The history of a workload that runs for so long. Tasks that ``make`` has started end with it."""
    history = MemoryHistory(lambda: int(asyncio.get_running_loop().time() * 1e6))

    async def body() -> None:
        history.record("info", "runner", "run", detail={"workload": name})
        workload = make(history)
        workload.start()
        await asyncio.sleep(run_s)
        await workload.finish(Limits(answers_s=10, read_s=10, settle_s=5))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(body())
    return history.events


def kinds(events: Sequence[Event]) -> set[Anomaly]:
    return {finding.kind for finding in examine(events).findings}
