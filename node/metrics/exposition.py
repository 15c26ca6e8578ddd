"""The text that Prometheus scrapes: the metrics are read in slices of the event loop, and printed by
prometheus_client in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client import PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.registry import Collector

from pykraft.node.metrics.metric import Kind, Metric, Sample
from pykraft.node.metrics.scrape import Scrape
from pykraft.node.metrics.table import METRICS
from pykraft.runtime.durations import BUCKETS, Durations

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SLICE_US: Final = 2_000
_STEPS_PER_LOOK: Final = 16
FIRST_BUCKET: Final = 6
"""Shorter durations than 64 µs are not told apart."""
_BOUNDS: Final = [repr(2**n / 1000) for n in range(FIRST_BUCKET, BUCKETS - 1)] + ["+Inf"]


class _Families(Collector):
    """The families read of a node, and prometheus_client's own of the process."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        yield from self._families
        yield from ProcessCollector(registry=None).collect()
        yield from PlatformCollector(registry=None).collect()


async def expose(scrape: Scrape, now_us: Callable[[], int], metrics: Sequence[Metric] = METRICS) -> bytes:
    """The text of all metrics."""
    await _in_slices(scrape.count(), now_us)
    families = []
    for metric in metrics:
        samples: list[Sample] = []
        await _in_slices(_collect(metric.read(scrape), samples), now_us)
        if samples:
            families.append(_family(metric, samples))
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, generate_latest, _Families(families))


def _collect(read: Iterable[Sample | None], samples: list[Sample]) -> Iterator[None]:
    for sample in read:
        if sample is not None:
            samples.append(sample)
        yield


async def _in_slices(steps: Iterator[None], now_us: Callable[[], int]) -> None:
    began_us = now_us()
    for number, _ in enumerate(steps):
        if number % _STEPS_PER_LOOK == 0 and now_us() - began_us > SLICE_US:
            await asyncio.sleep(0)
            began_us = now_us()


def _family(metric: Metric, samples: Sequence[Sample]) -> Family:
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in samples:
            assert isinstance(value, Durations), f"{metric.name} has a value that is no histogram"
            histogram.add_metric(labels, _buckets(value), value.sum_us / 1000)
        return histogram
    family = (
        GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        if metric.kind is Kind.GAUGE
        else CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    )
    for labels, value in samples:
        assert not isinstance(value, Durations), f"{metric.name} is not described as a histogram"
        family.add_metric(labels, value)
    return family


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    """Upper bounds in milliseconds, and how many durations are below each."""
    below = list(accumulate(durations.counts))[FIRST_BUCKET:]
    return list(zip(_BOUNDS, map(float, below), strict=True))
