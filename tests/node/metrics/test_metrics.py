"""What a real node tells Prometheus, against what was done to it; and its health checks."""

import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.node.errors import StartError
from pykraft.node.metrics.metric import Kind
from pykraft.node.metrics.table import METRICS
from pykraft.node.web.listening import MAX_CONNECTIONS
from pykraft.testing import Cluster
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

ROOT = Path(__file__).resolve().parents[3]
RECORDS = [f"value {number}".encode() for number in range(20)]


@dataclass
class Web:
    cluster: Cluster
    port: int

    @classmethod
    def of(cls, cluster: Cluster) -> "Web":
        """The first node's."""
        return cls(cluster, int(cluster.http_addresses[1].rpartition(":")[2]))

    def get(self, path: str, host: str | None = None, method: str = "GET", **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request(method, path, headers={"Host": host or f"127.0.0.1:{self.port}", **headers})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def metrics(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Values by name and the values of the labels, in the order of their names."""
        status, text = self.get("/metrics")
        assert status == 200
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                found.setdefault(sample.name, {})[labels] = sample.value
        return found


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with Cluster(nodes=1, http=True) as cluster:
        served = Web.of(cluster)
        wait_until("it serves", lambda: _answers(served), PATIENCE_S)
        yield served


def _answers(web: Web) -> bool:
    try:
        return web.get("/readyz")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def test_what_goes_in_and_out_is_counted(web: Web) -> None:
    web.cluster.create_topic("traffic", partitions=2)
    before = web.metrics()
    web.cluster.produce("traffic", *RECORDS, partition=1)
    assert [record.value for record in web.cluster.read("traffic", len(RECORDS))] == RECORDS
    after = web.metrics()

    def grown(name: str, topic: str) -> float:
        return after[name][(topic,)] - before[name].get((topic,), 0)

    topics = "kafka_server_brokertopicmetrics_"
    for topic in ("traffic", ""):
        assert grown(f"{topics}messagesin_total", topic) == len(RECORDS)
    assert grown(f"{topics}bytesin_total", "traffic") > sum(map(len, RECORDS))
    assert grown(f"{topics}bytesout_total", "traffic") >= grown(f"{topics}bytesin_total", "traffic")
    assert after["kafka_log_log_logendoffset"][("1", "traffic")] == len(RECORDS)
    assert after["kafka_log_log_size"][("1", "traffic")] == grown(f"{topics}bytesin_total", "traffic")
    assert after["kafka_network_requestmetrics_totaltimems_count"][("Produce",)] >= 1
    assert sum(after["kafka_network_requestmetrics_requests_total"].values()) > 3


def test_counts_are_those_of_the_cluster(web: Web) -> None:
    web.cluster.create_topic("counted", partitions=3)
    manager = "kafka_server_replicamanager_"
    controller = "kafka_controller_kafkacontroller_"

    def all_counted() -> bool:
        found = web.metrics()
        partitions = found[f"{controller}globalpartitioncount"][()]
        counted = (found[f"{manager}partitioncount"][()], found[f"{manager}leadercount"][()])
        return partitions >= 3 and counted == (partitions, partitions)

    wait_until("every partition is open and counted", all_counted, PATIENCE_S)
    found = web.metrics()
    assert found[f"{manager}underreplicatedpartitions"][()] == 0
    assert found[f"{controller}offlinepartitionscount"][()] == 0
    assert found[f"{controller}activecontrollercount"][()] == 1
    assert found["kafka_server_kafkaserver_brokerstate"][()] == 3
    assert found["kafka_server_raftmetrics_current_leader"][()] == 1
    assert found["pykraft_broker_lease_seconds"][()] > 0
    assert found["process_resident_memory_bytes"][()] > 0


def test_lag_of_a_group(web: Web) -> None:
    web.cluster.create_topic("lagging")
    web.cluster.produce("lagging", *RECORDS)
    with web.cluster.admin() as admin:
        admin.alter_group_offsets("late", {TopicPartition("lagging", 0): OffsetAndMetadata(5)})
    assert web.metrics()["kafka_consumergroup_lag"][("late", "0", "lagging")] == len(RECORDS) - 5


def test_names_and_kinds_keep_prometheus_rules() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch("[a-z][a-z0-9_]*", metric.name), metric.name
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert metric.help.endswith("."), metric.name


def test_healthy_node(web: Web) -> None:
    assert web.get("/healthz") == (200, "ok\n")
    assert web.get("/readyz") == (200, "ok\n")
    assert web.get("/nothing")[0] == 404
    assert web.get("/metrics", method="POST")[0] == 405


def test_connections_are_bounded_and_the_others_are_closed_at_once(web: Web) -> None:
    asked = MAX_CONNECTIONS + 50
    with ExitStack() as opened:
        clients = []
        for _ in range(asked):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", web.port), PATIENCE_S))
            client.setblocking(False)
            clients.append(client)
        wait_until("the last are closed", lambda: sum(map(_is_closed, clients)) >= 50, PATIENCE_S)
        assert sum(map(_is_closed, clients)) <= 51
    wait_until("there is room again", lambda: _answers(web), PATIENCE_S)


def _is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_address_in_use_refuses_the_start(web: Web) -> None:
    taken = {"pykraft.http.listener": f"127.0.0.1:{web.port}"}
    with pytest.raises(StartError, match=rf"cannot listen on pykraft.http.listener 127.0.0.1:{web.port}"):
        Cluster(nodes=1, properties=taken).start()


def test_broker_without_its_controllers_is_not_ready() -> None:
    with Cluster(nodes=3, http=True) as cluster:
        served = Web.of(cluster)
        wait_until("it serves", lambda: _answers(served), PATIENCE_S)
        cluster.kill(2)
        cluster.kill(3)
        wait_until("it is not ready", lambda: served.get("/readyz")[0] == 503, PATIENCE_S)
        assert re.search("lost contact|fenced", served.get("/readyz")[1])
        assert served.get("/healthz")[0] == 200
        assert served.metrics()["kafka_server_raftmetrics_current_epoch"][()] >= 1


def test_dashboard_asks_for_metrics_that_exist() -> None:
    dashboard = json.loads((ROOT / "docs" / "grafana-dashboard.json").read_text(encoding="utf-8"))
    asked = " ".join(
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ) + " ".join(str(variable.get("query")) for variable in dashboard["templating"]["list"])
    names = set(re.findall(r"\b(?:kafka|pykraft|process)_[a-z0-9_]+", asked))
    known = {metric.name for metric in METRICS} | {
        f"{metric.name}_bucket" for metric in METRICS if metric.kind is Kind.HISTOGRAM
    }
    of_the_process = {"process_cpu_seconds_total", "process_open_fds", "process_resident_memory_bytes"}
    assert len(names) > 20 and names <= known | of_the_process
