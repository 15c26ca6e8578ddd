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
from pathlib import Path
from types import FrameType

from confluent_kafka import KafkaException
from rich.console import Console

from pykraft.jepsen_like.awaiting import WaitError
from pykraft.jepsen_like.checkers.append import examine_append
from pykraft.jepsen_like.checkers.counting import count_run
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
from pykraft.jepsen_like.workloads.append import AppendConfig, AppendWorkload

WORKLOADS = ("append",)
DEFAULT_OUT_DIR = Path("out/jepsen")
HEAL_TIMEOUT_S = 60.0
FLUSH_TIMEOUT_S = 60.0
FINAL_READ_TIMEOUT_S = 30.0
PROCESS = "runner"


class RunError(RuntimeError):
    """The run could not be carried out; it says nothing about the cluster's promises."""


def run(
    workload: str = "append",
    time_limit_s: float = 60.0,
    seed: int = 1,
    out_dir: Path = DEFAULT_OUT_DIR,
    nodes: int = 3,
    console: Console | None = None,
) -> Result:
    """One run. :class:`RunError` when the cluster could not even be started."""
    if workload not in WORKLOADS:
        raise RunError(f"no workload {workload!r}; there are: {', '.join(WORKLOADS)}")
    console = console or Console()
    print_start(console, workload, seed, time_limit_s, run_self_test())
    directory = _new_directory(out_dir, f"{workload}-{seed}")
    history_path = directory / "history.jsonl"
    cluster = ProcessCluster(directory / "cluster", nodes, FAST_FAILOVER)
    config = AppendConfig()
    with HistoryWriter(history_path) as history, cluster:
        settings = {"workload": workload, "seed": seed, "time_limit_s": time_limit_s, "nodes": nodes}
        history.record("info", PROCESS, "run", detail=settings)
        _start(cluster, config, console)
        longest_leaderless_s, recovery_s = _break_and_heal(cluster, config, seed, time_limit_s, history)
        _stop_and_dump(cluster, config, history)
    start = time.monotonic()
    events = list(read_history(history_path))
    report = examine_append(events)
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
                result = run(workload, time_limit, first_seed + number, Path(out_dir), nodes, console)
            except (RunError, CorruptReplicaError) as error:
                console.print(f"seed {first_seed + number}: {error}", markup=False, highlight=False)
                return EXIT_ANOMALY if isinstance(error, CorruptReplicaError) else EXIT_COULD_NOT_RUN
            results.append(result)
    if runs > 1:
        print_runs(console, results)
    statuses = {result.exit_status for result in results}
    return next((s for s in (EXIT_ANOMALY, EXIT_DOES_NOT_COUNT) if s in statuses), EXIT_CLEAN)


def _start(cluster: ProcessCluster, config: AppendConfig, console: Console) -> None:
    try:
        cluster.format()
        took_s = cluster.start()
        cluster.create_topic(config.topic, config.partitions, configs={"min.insync.replicas": "2"})
    except (WaitError, RuntimeError, KafkaException) as error:
        raise RunError(f"the cluster did not start: {error}\n{cluster.output_tails()}") from error
    console.print(f"{len(cluster.nodes)} nodes ready in {took_s:.1f} s at {cluster.bootstrap_servers}")


def _break_and_heal(
    cluster: ProcessCluster, config: AppendConfig, seed: int, time_limit_s: float, history: HistoryWriter
) -> tuple[float, float | None]:
    """The run proper. Returns the longest leaderless spell and the time from healed to in sync."""
    observer = Observer(cluster, config.topic, history)
    workload = AppendWorkload(cluster.bootstrap_servers, config, seed, history)
    plan = plan_faults(seed, time_limit_s, cluster.session_timeout_ms / 1000)
    observer.start()
    workload.start()
    Nemesis(cluster, config.topic, plan, history).run(time_limit_s)
    recovery_s: float | None = None
    try:
        recovery_s = cluster.wait_in_sync(config.topic, HEAL_TIMEOUT_S)
    except WaitError as error:
        history.record("info", PROCESS, "no-progress", error=str(error))
    if not workload.stop_producers(FLUSH_TIMEOUT_S):
        history.record("info", PROCESS, "no-progress", error="producers still wait for answers")
    for partition in workload.final_read(FINAL_READ_TIMEOUT_S):
        error_text = "the last read did not reach every acknowledged offset"
        history.record("info", PROCESS, "no-progress", key=f"{config.topic}-{partition}", error=error_text)
    workload.stop_consumers()
    observer.stop()
    return observer.spells.longest_s, recovery_s


def _stop_and_dump(cluster: ProcessCluster, config: AppendConfig, history: HistoryWriter) -> None:
    """Stop every node, which must end well, and record what each replica's log holds."""
    for node_id, what in cluster.unordered_exits().items():
        history.record("info", f"node-{node_id}", "node-exited", error=what)
    for node_id in cluster.stop():
        tail = cluster.nodes[node_id].output_tail(600).strip()
        history.record("info", f"node-{node_id}", "node-exited", error=f"did not stop when asked: {tail}")
    for node_id in cluster.nodes:
        for partition in range(config.partitions):
            dump_replica(cluster.log_dir(node_id), node_id, config.topic, partition, history)


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
    parser.add_argument("--workload", choices=WORKLOADS, default="append")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, help="random when not given; printed either way")
    parser.add_argument("--runs", type=int, default=1, help="runs with successive seeds")
    parser.add_argument("--nodes", type=int, default=3)
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
        )
    )
