"""One fault run from seed to verdict: self-test, cluster, workload, nemesis, healing, last read, checkers.

``python -m pykraft.jepsen_like.runner --workload append --time-limit 60 --seed 1``. Exit status: 0 clean, 1
an anomaly, 3 clean but too quiet to count, 4 the run could not be carried out. The seed comes first in the
output; it fixes the plan of the faults and the producers' choices, though not the timing of real processes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from confluent_kafka import KafkaException
from rich.console import Console

from pykraft.jepsen_like.awaiting import WaitError
from pykraft.jepsen_like.checkers.counting import count_run
from pykraft.jepsen_like.checkers.history import Report, examine
from pykraft.jepsen_like.checkers.self_test import run_self_test
from pykraft.jepsen_like.history import HistoryWriter, read_history
from pykraft.jepsen_like.nemesis import Nemesis, plan_faults
from pykraft.jepsen_like.observer import Observer
from pykraft.jepsen_like.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.replica_dump import CorruptReplicaError, dump_replica
from pykraft.jepsen_like.report import (
    EXIT_ANOMALY,
    EXIT_CLEAN,
    EXIT_COULD_NOT_RUN,
    EXIT_DOES_NOT_COUNT,
    Result,
    print_result,
    print_runs,
    print_start,
)
from pykraft.jepsen_like.workloads.client import Clients
from pykraft.jepsen_like.workloads.confluent_clients import ConfluentClients
from pykraft.jepsen_like.workloads.group_seat import GroupsConfig
from pykraft.jepsen_like.workloads.own_clients import own_clients
from pykraft.jepsen_like.workloads.registry import WORKLOADS
from pykraft.jepsen_like.workloads.workload import Limits, TopicSpec, Workload
from pykraft.kafka_client.loop_thread import LoopThread

CLIENTS: Mapping[str, Callable[[str], Clients]] = {"confluent": ConfluentClients, "own": own_clients}
DEFAULT_OUT_DIR = Path("out/jepsen")
HEAL_TIMEOUT_S = 60.0
LIMITS = Limits(answers_s=60.0, read_s=30.0, settle_s=10.0)
PROCESS = "runner"
GROUPS = GroupsConfig()
PROPERTIES = {
    **FAST_FAILOVER,
    "group.consumer.session.timeout.ms": str(GROUPS.session_timeout_ms),
    "group.consumer.heartbeat.interval.ms": str(GROUPS.heartbeat_interval_ms),
}


class RunError(RuntimeError):
    """The run could not be carried out; it says nothing about the cluster's promises."""


def run(
    workload: str = "append",
    time_limit_s: float = 60.0,
    seed: int = 1,
    out_dir: Path = DEFAULT_OUT_DIR,
    nodes: int = 3,
    console: Console | None = None,
    client: str = "confluent",
    check: Callable[[Path], Report] | None = None,
) -> Result:
    """One run; ``check`` examines its history in another way. :class:`RunError` when the cluster could not be
    started."""
    if workload not in WORKLOADS:
        raise RunError(f"no workload {workload!r}; there are: {', '.join(WORKLOADS)}")
    console = console or Console()
    print_start(console, workload, seed, time_limit_s, run_self_test())
    directory = _new_directory(out_dir, f"{workload}-{seed}")
    history_path = directory / "history.jsonl"
    cluster = ProcessCluster(directory / "cluster", nodes, PROPERTIES)
    with HistoryWriter(history_path) as history, cluster, LoopThread() as loop:
        settings = {
            "workload": workload,
            "seed": seed,
            "time_limit_s": time_limit_s,
            "nodes": nodes,
            "client": client,
        }
        history.record("info", PROCESS, "run", detail=settings)
        clients = CLIENTS[client](cluster.bootstrap_servers)
        running = loop.call(lambda: WORKLOADS[workload](clients, seed, history))
        _start(cluster, running.topics, console)
        loop.call(running.start)
        longest_leaderless_s, recovery_s = _break_and_heal(
            cluster, loop, running, seed, time_limit_s, history
        )
        clients.close()
        _stop_and_dump(cluster, running.topics, history)
    start = time.monotonic()
    events = list(read_history(history_path))
    report = examine(events) if check is None else check(history_path)
    result = Result(
        workload=workload,
        seed=seed,
        time_limit_s=time_limit_s,
        nodes=nodes,
        history_path=history_path,
        verdict=count_run(events, time_limit_s),
        findings=report.findings,
        client_resends=report.client_resends,
        longest_leaderless_s=longest_leaderless_s,
        recovery_s=recovery_s,
        records_read=sum(len(event.records or ()) for event in events),
        check_s=time.monotonic() - start,
    )
    result.write_json(directory / "report.json")
    print_result(console, result, events)
    if not report.findings:
        _remove_data(cluster)
    return result


def main(
    workload: str = "append",
    time_limit: float = 60.0,
    seed: int | None = None,
    runs: int = 1,
    out_dir: str | Path = DEFAULT_OUT_DIR,
    nodes: int = 3,
    client: str = "confluent",
    check: Callable[[Path], Report] | None = None,
) -> int:
    """``runs`` runs with successive seeds (a random first one by default); the worst exit status.

    Stops at the first run that could not be carried out; goes on after an anomaly.
    """
    first_seed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    console = Console()
    results: list[Result] = []
    with _OrderlyTermination():
        for number in range(runs):
            try:
                result = run(
                    workload, time_limit, first_seed + number, Path(out_dir), nodes, console, client, check
                )
            except (RunError, CorruptReplicaError) as error:
                console.print(f"seed {first_seed + number}: {error}", markup=False, highlight=False)
                return EXIT_ANOMALY if isinstance(error, CorruptReplicaError) else EXIT_COULD_NOT_RUN
            results.append(result)
    if runs > 1:
        print_runs(console, results)
    statuses = {result.exit_status for result in results}
    return next((s for s in (EXIT_ANOMALY, EXIT_DOES_NOT_COUNT) if s in statuses), EXIT_CLEAN)


def _start(cluster: ProcessCluster, topics: Sequence[TopicSpec], console: Console) -> None:
    try:
        cluster.format()
        took_s = cluster.start()
        for topic in topics:
            cluster.create_topic(topic.name, topic.partitions, topic.replication_factor, topic.configs)
    except (WaitError, RuntimeError, KafkaException) as error:
        raise RunError(f"the cluster did not start: {error}\n{cluster.output_tails()}") from error
    console.print(f"{len(cluster.nodes)} nodes ready in {took_s:.1f} s at {cluster.bootstrap_servers}")


def _break_and_heal(
    cluster: ProcessCluster,
    loop: LoopThread,
    workload: Workload,
    seed: int,
    time_limit_s: float,
    history: HistoryWriter,
) -> tuple[float, float | None]:
    """The run proper. Returns the longest leaderless spell and the time from healed to in sync."""
    first = workload.topics[0].name
    observer = Observer(cluster, first, history)
    plan = plan_faults(seed, time_limit_s, cluster.session_timeout_ms / 1000)
    observer.start()
    Nemesis(cluster, first, plan, history).run(time_limit_s)
    recovery_s: float | None = None
    try:
        recovery_s = sum(cluster.wait_in_sync(topic.name, HEAL_TIMEOUT_S) for topic in workload.topics)
    except WaitError as error:
        history.record("info", PROCESS, "no-progress", error=str(error))
    loop.run(workload.finish(LIMITS))
    observer.stop()
    return observer.spells.longest_s, recovery_s


def _stop_and_dump(cluster: ProcessCluster, topics: Sequence[TopicSpec], history: HistoryWriter) -> None:
    """Stop every node, which must end well, and record what each replica's log holds."""
    placed = _replicas(cluster, topics)
    for node_id, what in cluster.unordered_exits().items():
        history.record("info", f"node-{node_id}", "node-exited", error=what)
    for node_id in cluster.stop():
        tail = cluster.nodes[node_id].output_tail(600).strip()
        history.record("info", f"node-{node_id}", "node-exited", error=f"did not stop when asked: {tail}")
    for (topic, partition), replicas in placed.items():
        for node_id in replicas:
            dump_replica(cluster.log_dir(node_id), node_id, topic, partition, history)


def _replicas(cluster: ProcessCluster, topics: Sequence[TopicSpec]) -> dict[tuple[str, int], tuple[int, ...]]:
    """Where the replicas of each partition are; every node's if nobody can say."""
    probe = cluster.probe("replicas")
    placed = {(one.name, number): tuple(cluster.nodes) for one in topics for number in range(one.partitions)}
    for topic in topics:
        for view in cluster.views(probe, topic.name):
            placed |= {(topic.name, number): seen.replicas for number, seen in view.partitions.items()}
    probe.close()
    return placed


def _new_directory(out_dir: Path, name: str) -> Path:
    """A directory that did not exist: earlier runs with the same seed keep theirs."""
    for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
        directory = out_dir / f"{name}{suffix}"
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            continue
        return directory
    raise RunError(f"{out_dir} holds too many runs named {name}")


def _remove_data(cluster: ProcessCluster) -> None:
    """A clean run's logs are of no further use; the history and the nodes' outputs stay."""
    for node_id in cluster.nodes:
        shutil.rmtree(cluster.log_dir(node_id), ignore_errors=True)


class _OrderlyTermination:
    """Turns SIGTERM into an exit that unwinds, so that no node outlives the run."""

    def __enter__(self) -> None:
        self._before = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._exit)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    @staticmethod
    def _exit(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="pykraft jepsen run", description="Break a real cluster and check it."
    )
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="append")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, help="random when not given; printed either way")
    parser.add_argument("--runs", type=int, default=1, help="runs with successive seeds")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--client", choices=sorted(CLIENTS), default="confluent", help="whose clients")
    parser.add_argument("--out-dir", type=Path, default=DEFAULT_OUT_DIR)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse_arguments(sys.argv[1:])
    sys.exit(
        main(
            workload=options.workload,
            time_limit=options.time_limit,
            seed=options.seed,
            runs=options.runs,
            out_dir=options.out_dir,
            nodes=options.nodes,
            client=options.client,
        )
    )
