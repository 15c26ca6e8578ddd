"""Cost of metrics: ``python benchmarks/metrics.py --rounds 3``.

Measuring a request costs so little beside serving it that two runs of a broker do not differ by it more than
they differ anyway. So both are measured: what the wrapper adds to a request, against an empty handler; and
what a busy broker, with clients of every usual kind, spends on one, by its own metrics. A scrape is measured
on the idle broker.
"""

import argparse
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from statistics import median

import confluent_kafka as ck
from prometheus_client.parser import text_string_to_metric_families

from pykraft.broker.serving.request_metrics import MeasuredRequests
from pykraft.kafka_protocol.connection import Connection, RequestHandler, ResponseSlot
from pykraft.runtime.clock import monotonic_us
from pykraft.runtime.network.streams import Chunk
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

REQUESTS = 200_000
BUSY_S = 8.0
SCRAPES = 20
PARTITIONS = 100
PRODUCERS = 4
FETCH = 1
REQUEST = memoryview(bytearray(struct.pack(">ihhi", 8, FETCH, 12, 1)))


class _Link:
    def write(self, chunks: Sequence[Chunk]) -> None: ...
    def close(self) -> None: ...
    def has_turn(self) -> bool:
        return True

    def receive_more(self) -> None: ...
    def keep_received(self) -> bool:
        return False


class _Empty:
    """Answers every request at once."""

    def handle_frame(self, connection: Connection, frame: memoryview, slot: ResponseSlot) -> None:
        slot.complete_framed((b"answer",))


def _time_us(handler: RequestHandler) -> float:
    """Of one request, without its socket."""
    connection = Connection(
        _Link(),
        handler,
        connection_id=1,
        peer_address="127.0.0.1",
        listener_name="PLAINTEXT",
        max_request_bytes=1000,
    )
    began = time.process_time()
    for _ in range(REQUESTS):
        connection.receive(REQUEST)
    return (time.process_time() - began) / REQUESTS * 1e6


def _added_us() -> float:
    return _time_us(MeasuredRequests(_Empty(), {FETCH: ("Fetch", range(18))}, monotonic_us)) - _time_us(
        _Empty()
    )


def _scrape(address: str) -> dict[str, float]:
    """The metrics without labels, and the number of requests."""
    with urllib.request.urlopen(f"http://{address}/metrics") as response:
        text = response.read().decode()
    found = {"requests": 0.0}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "kafka_network_requestmetrics_requests_total":
                found["requests"] += sample.value
            elif not sample.labels:
                found[sample.name] = sample.value
    return found


def _serves(address: str) -> bool:
    try:
        return "requests" in _scrape(address)
    except OSError:
        return False


def _keep_busy(cluster: Cluster, until_s: float) -> None:
    """Small batches of several producers, and a consumer of them all."""

    def produce(number: int) -> None:
        producer = ck.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1})
        while time.monotonic() < until_s:
            producer.produce("busy", bytes(1000), partition=number)
            producer.poll(0 if len(producer) < 500 else 0.01)
        producer.flush()

    def consume() -> None:
        consumer = ck.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "busy"})
        consumer.subscribe(["busy"])
        while time.monotonic() < until_s:
            consumer.consume(1000, 0.1)
        consumer.close()

    works: list[Callable[[], None]] = [lambda n=n: produce(n) for n in range(PRODUCERS)]  # type: ignore[misc]
    threads = [threading.Thread(target=work) for work in (*works, consume)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _play_round() -> tuple[float, float, float]:
    """(µs that measuring adds to a request, the broker's µs for a request, its ms for a scrape)."""
    with Cluster(processes=True, http=True) as cluster:
        cluster.create_topic("busy", PRODUCERS)
        cluster.create_topic("idle", PARTITIONS - PRODUCERS)
        address = cluster.http_addresses[1]
        wait_until("metrics are served", lambda: _serves(address), PATIENCE_S)
        before = _scrape(address)
        _keep_busy(cluster, time.monotonic() + BUSY_S)
        after = _scrape(address)
        for _ in range(SCRAPES):
            last = _scrape(address)
        cpu = "process_cpu_seconds_total"
        scrape_ms = (last[cpu] - after[cpu]) / SCRAPES * 1e3
        request_us = (after[cpu] - before[cpu]) / (after["requests"] - before["requests"]) * 1e6
    return _added_us(), request_us, scrape_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = [_play_round() for _ in range(parser.parse_args().rounds)]
    added, request, scrape = (median(column) for column in zip(*rounds, strict=True))
    shares = [f"{one[0] / one[1]:.1%}" for one in rounds]
    print(f"measuring adds {added:.2f} µs to a request, of which a busy broker spends {request:.0f} µs:")
    print(f"  {added / request:.1%} (rounds: {', '.join(shares)})")
    print(
        f"a scrape of {PARTITIONS} partitions costs {scrape:.0f} ms of processor time: every 15 s"
        f" {scrape / 15_000:.2%} of a core"
    )


if __name__ == "__main__":
    main()
