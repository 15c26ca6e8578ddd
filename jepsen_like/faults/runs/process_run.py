"""A fault run on nodes of its own: started, worked on, broken, healed, stopped, and their logs read."""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from rich.console import Console

from pykraft.jepsen_like.faults.clusters.observer import Observer
from pykraft.jepsen_like.faults.clusters.other_version import OtherVersionError, find_other_version
from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.faults.clusters.replica_dump import dump_replica
from pykraft.jepsen_like.faults.history import HistoryWriter
from pykraft.jepsen_like.faults.nemeses.choice import choose
from pykraft.jepsen_like.faults.nemeses.fault import Plan
from pykraft.jepsen_like.faults.nemeses.nemesis import Nemesis
from pykraft.jepsen_like.faults.nemeses.planning import plan_faults
from pykraft.jepsen_like.faults.run_files import CLUSTER, HISTORY, PLAN
from pykraft.jepsen_like.faults.runs import machine
from pykraft.jepsen_like.faults.runs.interruption import early_end
from pykraft.jepsen_like.faults.runs.progress import Progress
from pykraft.jepsen_like.faults.runs.run_config import (
    LIMITS,
    PROCESS,
    RunConfig,
    RunError,
    TidyUp,
    open_clients,
    warn,
)
from pykraft.jepsen_like.faults.runs.standstill import no_standstill
from pykraft.jepsen_like.faults.surroundings.namespaces import NamespacesError, enter_own_namespaces
from pykraft.jepsen_like.faults.surroundings.root import Root
from pykraft.jepsen_like.faults.surroundings.tiers import TIERS
from pykraft.jepsen_like.faults.timeline.overview import FAULTS_BEGIN, FAULTS_END, IN_SYNC, LEADERLESS
from pykraft.jepsen_like.faults.workloads.group_seat import GroupsConfig
from pykraft.jepsen_like.faults.workloads.registry import LEAVE_OUT, WORKLOADS
from pykraft.jepsen_like.faults.workloads.registry import PROPERTIES as WORKLOAD_PROPERTIES
from pykraft.jepsen_like.faults.workloads.workload import TopicSpec, Workload
from pykraft.kafka_client.loop_thread import LoopThread
from pykraft.testing.processes.kafka_jars import NoKafkaError
from pykraft.testing.processes.systems import find_system
from pykraft.testing.processes.waits import WaitError

GROUPS: Final = GroupsConfig()
PROPERTIES: Final = {
    **FAST_FAILOVER,
    "group.consumer.session.timeout.ms": str(GROUPS.session_timeout_ms),
    "group.consumer.heartbeat.interval.ms": str(GROUPS.heartbeat_interval_ms),
    # Of the topics of workloads, too: what coordinators store is promised as records are.
    "min.insync.replicas": "2",
    # A short run is to have finished segments and recovery points, and a scrub of them.
    "log.segment.bytes": str(1 << 20),
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "log.scrub.bytes.per.second": "100000000",
    "log.cleaner.backoff.ms": "1000",
}


def play_on_processes(config: RunConfig, directory: Path, console: Console) -> TidyUp:
    """On nodes of the run's own, with faults."""
    cluster = _cluster(config, directory / CLUSTER)
    watch = no_standstill() if config.ends_standstill else nullcontext()
    with HistoryWriter(directory / HISTORY) as history, cluster, watch, LoopThread() as loop:
        history.record("info", PROCESS, "run", detail={**config.settings(), **machine.describe()})
        with closing(open_clients(config, cluster.bootstrap_servers)) as clients:
            running = loop.call(lambda: WORKLOADS[config.workload](clients, config.seed, history))
            _start(cluster, running.topics, console)
            plan = config.plan or _plan(config, cluster, console)
            plan.write(directory / PLAN)
            loop.call(running.start)
            with Progress(console, history, plan) as progress:
                _break_and_heal(cluster, loop, running, plan, history, progress)
        _stop_and_dump(cluster, running.topics, history)
    return lambda is_kept: None if is_kept else _remove_data(cluster)


def _cluster(config: RunConfig, directory: Path) -> ProcessCluster:
    """No thread has been started yet: those that exist stay outside of the namespaces."""
    try:
        if config.tier == Root.tier:
            enter_own_namespaces()
        system = find_system(config.system, config.kafka_libs)
        other_version = find_other_version(config.other_version, directory.parent / "other-version")
    except (NamespacesError, NoKafkaError, OtherVersionError) as error:
        raise RunError(str(error)) from error
    return ProcessCluster(
        directory,
        config.nodes,
        {**PROPERTIES, **WORKLOAD_PROPERTIES.get(config.workload, {})},
        surroundings=TIERS[config.tier](),
        system=system,
        spares=1,
        dynamic_voters=True,
        other_version=other_version,
    )


def _start(cluster: ProcessCluster, topics: Sequence[TopicSpec], console: Console) -> None:
    try:
        cluster.format()
        took_s = cluster.start()
        for topic in topics:
            cluster.create_topic(topic.name, topic.partitions, topic.replication_factor, topic.configs)
    except (WaitError, RuntimeError, KafkaException) as error:
        raise RunError(f"the cluster did not start: {error}\n{cluster.output_tails()}") from error
    for what in cluster.surroundings.missing:
        warn(console, f"NOT HERE: {what}")
    console.print(f"{len(cluster.members)} nodes ready in {took_s:.1f} s at {cluster.bootstrap_servers}")


def _plan(config: RunConfig, cluster: ProcessCluster, console: Console) -> Plan:
    """A plan of the kinds that are possible here; the others are named loudly."""
    possible = []
    for kind in choose(config.nemesis):
        reason = kind.why_unavailable(cluster)
        if config.workload in kind.not_with:
            reason = f"the workload {config.workload} would undo its repair"
        if not LEAVE_OUT.get(config.workload, frozenset()).isdisjoint((kind.name, kind.family)):
            reason = f"after it too little is promised to the workload {config.workload}"
        if reason is None:
            possible.append(kind)
        else:
            warn(console, f"NOT PLAYED: {kind.name}: {reason}")
    return plan_faults(config.seed, config.time_limit_s, possible, cluster.session_timeout_ms / 1000)


def _break_and_heal(
    cluster: ProcessCluster,
    loop: LoopThread,
    workload: Workload,
    plan: Plan,
    history: HistoryWriter,
    progress: Progress,
) -> None:
    """The run proper."""
    history.watch = progress.note
    topics = [topic.name for topic in workload.topics]
    for topic in workload.topics:
        history.record("info", PROCESS, "topic", value=topic.name, detail=topic.configs)
    observer = Observer(cluster, topics[0], history)
    observer.start()
    history.record("info", PROCESS, FAULTS_BEGIN)
    nemesis = Nemesis(cluster, topics, plan, history, progress.say)

    def end() -> None:
        progress.say("ends early: repairs everything, and checks what there is; Ctrl-C again breaks off")
        nemesis.stop()

    with early_end(end) as asked:
        nemesis.run(plan.time_limit_s)
    history.record("info", PROCESS, FAULTS_END, detail={"early": True} if asked.is_set() else None)
    progress.enter("waits until all replicas are in sync")
    try:
        took_s = await_in_sync(cluster, topics, history)
    except WaitError as error:
        history.record("info", PROCESS, "no-progress", error=str(error))
    else:
        history.record("info", PROCESS, IN_SYNC, detail={"took_s": took_s})
    progress.enter("ends the workload and reads everything once more")
    loop.run(workload.finish(LIMITS))
    observer.stop()
    history.record("info", PROCESS, LEADERLESS, detail={"longest_s": observer.spells.longest_s})


def await_in_sync(cluster: ProcessCluster, topics: Sequence[str], history: HistoryWriter) -> float:
    """How many seconds it took. A node that ends meanwhile, which is a finding, is started once more: without
    nodes nothing that follows would end either."""

    started_again: set[int] = set()
    while True:
        try:
            return sum(cluster.wait_in_sync(topic, cluster.system.start_timeout_s) for topic in topics)
        except WaitError:
            ended = _record_exits(cluster, history)
            if ended <= started_again:
                raise
            started_again |= ended
            cluster.heal()


def _record_exits(cluster: ProcessCluster, history: HistoryWriter) -> set[int]:
    """Record which nodes have ended without being told to; their ids."""
    exits = cluster.unordered_exits()
    for node_id, what in exits.items():
        cluster.nodes[node_id].forgive_exit()
        history.record("info", f"node-{node_id}", "node-exited", error=what)
    return set(exits)


def _stop_and_dump(cluster: ProcessCluster, topics: Sequence[TopicSpec], history: HistoryWriter) -> None:
    """Stop every node, which must end well, and record what the log of each of its replicas holds.

    One that could not be started has not repaired its logs: that it stays away is a finding already.
    """
    placed = _replicas(cluster, topics)
    running = {node_id for node_id, node in cluster.nodes.items() if node.running}
    _record_exits(cluster, history)
    for node_id in cluster.stop():
        tail = cluster.nodes[node_id].output_tail(600).strip()
        history.record("info", f"node-{node_id}", "node-exited", error=f"did not stop when asked: {tail}")
    for (topic, partition), replicas in placed.items():
        for node_id in sorted(running.intersection(replicas)):
            dump_replica(cluster.log_dir(node_id), node_id, topic, partition, history)


def _replicas(cluster: ProcessCluster, topics: Sequence[TopicSpec]) -> dict[tuple[str, int], tuple[int, ...]]:
    """Where the replicas of each partition are; every member's if nobody can say."""
    probe = cluster.probe("replicas")
    placed = {
        (one.name, number): tuple(cluster.members) for one in topics for number in range(one.partitions)
    }
    for topic in topics:
        for view in cluster.views(probe, topic.name):
            placed |= {(topic.name, number): seen.replicas for number, seen in view.partitions.items()}
    probe.close()
    return placed


def _remove_data(cluster: ProcessCluster) -> None:
    """A clean run's logs are of no further use; the history and the nodes' outputs stay."""
    for node_id in cluster.nodes:
        cluster.surroundings.remove_data(cluster.directory, node_id)
