"""A run of a workload on a cluster that somebody else runs, without faults."""

import time
from contextlib import closing
from functools import partial
from pathlib import Path

from rich.console import Console

from pykraft.jepsen_like.faults.history import HistoryWriter
from pykraft.jepsen_like.faults.nemeses.fault import Plan
from pykraft.jepsen_like.faults.run_files import HISTORY
from pykraft.jepsen_like.faults.runs import machine
from pykraft.jepsen_like.faults.runs.foreign import ForeignCluster, ForeignClusterError
from pykraft.jepsen_like.faults.runs.foreign_workload import NOT_CHECKED, foreign_workload
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
from pykraft.kafka_client.loop_thread import LoopThread


def play_on_foreign_cluster(config: RunConfig, directory: Path, console: Console) -> TidyUp:
    """:class:`RunError` if the cluster cannot be used."""
    assert config.bootstrap_servers is not None
    say, cluster = partial(warn, console), ForeignCluster(config.bootstrap_servers)
    say(f"NOT PLAYED: faults; NOT CHECKED: {NOT_CHECKED}")
    plan = Plan(config.seed, config.time_limit_s, (), ())
    try:
        cluster.connect(say)
        with HistoryWriter(directory / HISTORY) as history, cluster, LoopThread() as loop:
            detail = {**config.settings(), **cluster.settings(), **machine.describe()}
            history.record("info", PROCESS, "run", detail=detail)
            with closing(open_clients(config, cluster.bootstrap_servers)) as clients:
                workload = loop.call(
                    lambda: foreign_workload(cluster, clients, config.workload, config.seed, history, say)
                )
                cluster.create(workload.topics, history)
                console.print(f"{len(cluster.brokers)} brokers; names begin with {cluster.prefix}")
                with Progress(console, history, plan) as progress:
                    loop.call(workload.start)
                    time.sleep(config.time_limit_s)
                    progress.enter("ends the workload and reads everything once more")
                    loop.run(workload.finish(LIMITS))
    except ForeignClusterError as error:
        raise RunError(str(error)) from error
    return partial(cluster.tidy_up, say)
