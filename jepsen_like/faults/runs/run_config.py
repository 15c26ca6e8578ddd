"""How one fault run is made, and what the two ways to make it have in common."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from pykraft.jepsen_like.faults.clients.confluent import ConfluentClients
from pykraft.jepsen_like.faults.clients.java import JavaClients
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients, RealClients
from pykraft.jepsen_like.faults.nemeses.fault import Plan
from pykraft.jepsen_like.faults.workloads.workload import Limits
from pykraft.testing.processes.kafka_jars import NoKafkaError

CLIENTS: Final[Mapping[str, Callable[[str], OwnClients]]] = {
    "confluent": ConfluentClients,
    "own": RealClients,
    "java": JavaClients,
}
DEFAULT_OUT_DIR: Final = Path("out/jepsen")
LIMITS: Final = Limits(answers_s=60.0, read_s=30.0, settle_s=10.0)
PROCESS: Final = "runner"

TidyUp = Callable[[bool], None]
"""Called when the run has been judged, with whether there is an anomaly: then its data are kept."""


class RunError(RuntimeError):
    """The run could not be carried out; it says nothing about the cluster's promises."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """One run. ``nemesis`` chooses kinds (:func:`.choice.choose`), unless there is a ``plan``.

    With ``bootstrap_servers`` it tests a cluster that somebody else runs, without faults."""

    workload: str = "append"
    nemesis: str = "signals"
    tier: str = "portable"
    time_limit_s: float = 60.0
    seed: int = 1
    out_dir: Path = DEFAULT_OUT_DIR
    nodes: int = 3
    client: str = "confluent"
    system: str = "pykraft"
    kafka_libs: Path | None = None
    bootstrap_servers: str | None = None
    other_version: str | None = None
    plan: Plan | None = None
    ends_standstill: bool = False
    """Whether the process may be ended if it stands still (:mod:`.standstill`): if it does nothing else."""

    def settings(self) -> dict[str, object]:
        """For the history."""
        names = ("workload", "nemesis", "tier", "seed", "time_limit_s", "nodes", "client", "system")
        return {name: getattr(self, name) for name in (*names, "bootstrap_servers", "other_version")}


def open_clients(config: RunConfig, bootstrap_servers: str) -> OwnClients:
    try:
        if config.client == "java":
            return JavaClients(bootstrap_servers, config.kafka_libs)
        return CLIENTS[config.client](bootstrap_servers)
    except NoKafkaError as error:
        raise RunError(str(error)) from error


def warn(console: Console, line: str) -> None:
    console.print(line, style="bold yellow", markup=False, highlight=False, soft_wrap=True)
