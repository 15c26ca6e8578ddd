"""Group members of aiokafka, on one event loop (see member_program.py)."""

import asyncio
import json
import sys
from collections.abc import Collection

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from tests.interop.member_program import Order, Report


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, report: Report) -> None:
        self.report = report

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.report.assigned(item.partition for item in assigned)

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.report.revoked(item.partition for item in revoked)


async def run(order: Order, report: Report, stopping: asyncio.Event) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=order.servers,
        client_id=order.name,
        group_id=order.group,
        group_instance_id=order.instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=order.session_ms,
        heartbeat_interval_ms=500,
        fetch_max_wait_ms=300,
    )
    consumer.subscribe([order.topic], listener=Listener(report))
    await consumer.start()
    while not stopping.is_set():
        polled = await consumer.getmany(timeout_ms=200)
        got = [(r.partition, r.offset) for records in polled.values() for r in records]
        if not got:
            continue
        report.say(got=got)
        ends = {partition: 1 + max(o for p, o in got if p == partition) for partition, _ in got}
        try:
            async with asyncio.timeout(2):
                await consumer.commit({TopicPartition(order.topic, p): end for p, end in ends.items()})
        except (KafkaError, TimeoutError):
            continue  # a later turn commits them
        report.say(committed=sorted(ends.items()))
    await consumer.stop()


async def guarded(order: Order, stopping: asyncio.Event) -> None:
    report = Report(order.name)
    try:
        await run(order, report, stopping)
        report.say(stopped=True)
    except Exception as error:
        report.say(error=repr(error))
        raise


async def main() -> None:
    stopping: dict[str, asyncio.Event] = {}
    tasks = set()
    while line := await asyncio.to_thread(sys.stdin.readline):
        read = json.loads(line)
        if "stop" in read:
            stopping[read["stop"]].set()
            continue
        order = Order(read)
        event = stopping[order.name] = asyncio.Event()
        task = asyncio.create_task(guarded(order, event))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    asyncio.run(main())
