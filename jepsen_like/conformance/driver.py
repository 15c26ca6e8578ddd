"""Runs of a differential test: both systems side by side, scripts by seed, differences shortened."""

import argparse
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pykraft.jepsen_like.conformance.compare import AGAIN_GRACE_S, Comparison, Difference
from pykraft.jepsen_like.conformance.draw import Versions
from pykraft.jepsen_like.conformance.known.groups import Known
from pykraft.jepsen_like.conformance.player import System as Played
from pykraft.jepsen_like.conformance.script import Script, Step
from pykraft.jepsen_like.minimise import minimise
from pykraft.runtime.address import Address
from pykraft.testing.processes.cluster import Cluster
from pykraft.testing.processes.kafka_jars import NoKafkaError, find_server
from pykraft.testing.processes.listeners import LOOPBACK
from pykraft.testing.processes.systems import Kafka, Pykraft
from pykraft.testing.processes.wire_client import WireClient

_PATIENCE_TO_MINIMISE: Final = 1

Prepare = Callable[[Any, WireClient], None]
"""Makes a system, by its name and a connection, ready for scripts."""


@contextlib.contextmanager
def both_systems(
    directory: Path, kafka: Kafka, properties: Mapping[str, str], prepare: Prepare
) -> Iterator[tuple[Played, Played]]:
    """This broker and Apache Kafka, one combined node of each, both ready for scripts."""
    with contextlib.ExitStack() as stack:
        played = []
        for system in (Pykraft(), kafka):
            place = directory / system.name
            place.mkdir(parents=True)
            cluster = stack.enter_context(Cluster(system, place, 1, properties))
            address = Address(LOOPBACK, cluster.port)
            with WireClient(address) as client:
                prepare(system, client)
            played.append(stack.enter_context(contextlib.closing(Played(system.name, address))))
        yield played[0], played[1]


def _find_kafka(libs: Path | None) -> Kafka:
    try:
        return Kafka(find_server(libs))
    except NoKafkaError as error:
        raise SystemExit(str(error)) from None


def served_by_both(ours: Played, kafka: Played) -> Versions:
    return {
        key: (max(lowest, kafka.versions[key][0]), min(highest, kafka.versions[key][1]))
        for key, (lowest, highest) in ours.versions.items()
        if key in kafka.versions
    }


def shortest(comparison: Comparison, found: Difference) -> Difference:
    """The same difference, as far as that can be told, of a script as short as possible."""
    api = type(found.script.steps[found.at].request)
    best = found

    def still(steps: Sequence[Step]) -> bool:
        nonlocal best
        script = replace(found.script, steps=tuple(steps))
        shorter = comparison.find(script, _PATIENCE_TO_MINIMISE)
        if shorter is None or type(script.steps[shorter.at].request) is not api:
            return False
        best = shorter
        return True

    minimise(found.script.steps[: found.last + 1], still)
    return comparison.find(best.script) or found


def run(
    options: argparse.Namespace,
    properties: Mapping[str, str],
    prepare: Prepare,
    known: tuple[Known, ...],
    generate: Callable[[int, Versions], Script],
) -> int:
    """Play the scripts that ``options`` (:func:`add_options`) ask for; the exit status."""
    steps = Counter[str]()
    played, differences = 0, []
    system = _find_kafka(options.kafka_libs)
    with tempfile.TemporaryDirectory(prefix="differential-") as directory:  # noqa: SIM117
        with both_systems(Path(directory), system, properties, prepare) as (ours, kafka):
            comparison = Comparison(ours, kafka, known)
            versions = served_by_both(ours, kafka)
            started = time.monotonic()
            for seed in range(options.first, options.first + options.seeds):
                script = generate(seed, versions)
                steps.update(type(step.request).__name__ for step in script.steps)
                found = comparison.find(script, options.patience)
                played += 1
                if found is not None:
                    differences.append(seed)
                    found = shortest(comparison, found) if options.shorten else found
                    print(f"{found.script}\n{found}\n", flush=True)
                    if len(differences) >= options.at_most:
                        break
            taken_s = time.monotonic() - started
    for name, times in sorted(comparison.met.items()):
        print(f"known difference, seen in {times} comparisons: {name}")
    print(f"requests: {', '.join(f'{name} {count}' for name, count in steps.most_common())}")
    print(
        f"{played} scripts, {steps.total()} steps, {taken_s:.0f} s:"
        f" {len(differences)} scripts differ {differences or ''}"
    )
    return 1 if differences else 0


def add_options(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=300, help="how many scripts")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--at-most", type=int, default=10, help="stop after so many differences")
    parser.add_argument(
        "--no-shorten", dest="shorten", action="store_false", help="print differing scripts as they are"
    )
    parser.add_argument(
        "--patience", type=int, default=len(AGAIN_GRACE_S), help="play so often before a difference counts"
    )
    parser.add_argument(
        "--kafka-libs", type=Path, help="the jars of Apache Kafka 4.3.0, instead of downloading them"
    )
    return parser
