"""Where the time of a batch goes: parts of it measured alone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Final

from spark_comparison.prebuilt_source import NAME, PrebuiltReader
from spark_comparison.rows import Bench, timed
from spark_comparison.topics import PARTITIONS, Load

from pykraft.kafka_client.blocking import BlockingNetwork, run
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.fetcher import FetchedBatches, PartitionFetcher
from pykraft.spark.columns import COLUMNS
from pykraft.spark.decode import DecodeConfig, decode_batches
from pykraft.spark.options import BatchReadOptions, parse_batch_options

_BATCH_BYTES: Final = 1 << 20


def measure(bench: Bench, load: Load) -> None:
    options = parse_batch_options(bench.options(load.topic))
    fetch_s, decode_s = [], []
    for _ in range(bench.rounds + 1):
        start_s = time.process_time()
        answers = [list(_fetched(options, load, partition)) for partition in range(PARTITIONS)]
        fetched_s = time.process_time()
        rows = sum(_decode(answer, load, partition) for partition, answer in enumerate(answers))
        decode_s.append(time.process_time() - fetched_s)
        fetch_s.append(fetched_s - start_s)
        assert rows == load.count, rows
    bench.results.parts[load.name] = {
        "fetch": median(fetch_s[1:]),
        "decode": median(decode_s[1:]),
        "hand-over": median(_hand_over(bench, load)),
    }
    print(f"parts, {load.name}: {bench.results.parts[load.name]}", flush=True)


def _fetched(options: BatchReadOptions, load: Load, partition: int) -> Iterator[FetchedBatches]:
    cluster = Cluster(BlockingNetwork(), options.client)
    fetcher = PartitionFetcher(cluster, load.topic, None, partition, 0, options.fetch)
    try:
        while True:
            fetched = run(fetcher.fetch(cluster.deadline()))
            yield fetched
            if fetched.next_offset >= fetched.high_watermark:
                return
    finally:
        fetcher.close()
        cluster.close()


def _decode(answers: Iterable[FetchedBatches], load: Load, partition: int) -> int:
    config = DecodeConfig(load.topic, partition, 0, 1 << 62, COLUMNS)
    return sum(batch.num_rows for one in answers for batch in decode_batches(one.data, one.headers, config))


def _hand_over(bench: Bench, load: Load) -> list[float]:
    rows = max(1, _BATCH_BYTES // load.value_bytes)
    given = (PARTITIONS, max(1, load.count // PARTITIONS // rows), rows, load.value_bytes)
    settings = dict(zip(PrebuiltReader.OPTIONS, map(str, given), strict=True))
    frame = bench.session.read.format(NAME).options(**settings).load()
    return [
        timed(lambda: frame.write.format("noop").mode("overwrite").save()) for _ in range(bench.rounds + 1)
    ][1:]
