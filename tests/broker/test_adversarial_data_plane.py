"""Brokers on real sockets, each with something wrong that must not stay unnoticed or hurt others."""

from __future__ import annotations

from typing import Any

from pykraft.kafka_protocol.errors import ErrorCode


def test_follower_without_records_beyond_its_leaders_end_starts_over(data_plane: Any) -> None:
    async def body() -> None:
        async with data_plane.cluster(1, 2) as cluster:
            await cluster.create(1, 2)
            cluster.partition(2).restart_at(50)  # as after losing all that lay behind its log start
            client = await cluster.client(1)
            assert (await client.produce(data_plane.batch(b"v"))).error_code == 0
            assert cluster.partition(2).log.log_end_offset == 1

    data_plane.run(body)


def test_damage_met_while_reading_is_a_storage_error_and_halts_the_node(data_plane: Any) -> None:
    async def body() -> None:
        async with data_plane.cluster(1) as cluster:
            await cluster.create(1)
            client = await cluster.client(1)
            for _ in range(3):
                await client.produce(data_plane.batch(b"v" * 50))
            broker = cluster.brokers[1]
            broker.disk.flip_bit(f"{cluster.partition(1).log.directory}/{0:020d}.log", 8, 7)  # batch length
            result = await client.fetch(1)
            assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert len(broker.faults) == 1 and "corrupt" in broker.faults[0]
            broker.faults.clear()

    data_plane.run(body)


def test_one_expiry_that_fails_does_not_keep_others_waiting_for_ever(data_plane: Any) -> None:
    class Failing:
        bucket = -1

        def expire(self) -> None:
            raise RuntimeError("planted")

    async def body() -> None:
        import asyncio

        async with data_plane.cluster(1) as cluster:
            await cluster.create(1)
            wakeups = cluster.brokers[1].replicas.wakeups
            seen: list[Any] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
            client = await cluster.client(1)
            wakeups.wait_until(Failing(), cluster.brokers[1].replicas.clock.monotonic_ms() + 30)
            client.send_fetch(0, max_wait_ms=30)
            client.send_fetch(0, max_wait_ms=120)
            for _ in range(2):
                async with asyncio.timeout(5):
                    await client.receive()
            assert len(seen) == 1

    data_plane.run(body)
