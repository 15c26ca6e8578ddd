"""The configuration of a simulated node: a ``server.properties`` like any other."""

from functools import cache
from typing import Final

from pykraft.broker.replicas.replica_selector import RACK_AWARE_SELECTOR
from pykraft.jepsen_like.faults.workloads.group_seat import GroupsConfig
from pykraft.jepsen_like.simulation.cluster.checks.follower_reads import RACKS
from pykraft.jepsen_like.simulation.cluster.options import WorldOptions
from pykraft.node.config import ServerConfig, load_server_config
from pykraft.runtime.address import Address
from pykraft.runtime.simulated.streams import address_of

CLIENT_PORT: Final = 9092
QUORUM_PORT: Final = 9093
DATA: Final = "/data"
GROUPS: Final = GroupsConfig()


def data_dirs(options: WorldOptions) -> tuple[str, ...]:
    """The log directories of a broker. Replicas are in all of them, the metadata log in the first."""
    return (DATA, *(f"{DATA}-{number}" for number in range(2, options.log_dirs + 1)))


def quorum_address(node_id: int) -> Address:
    """The port on which a controller listens for its peers."""
    return Address(address_of(node_id), QUORUM_PORT)


@cache
def server_config(options: WorldOptions, node_id: int, *, session_ms: int) -> ServerConfig:
    """The properties of one start of a node; ``session_ms``: of its controller, if it has one."""
    is_controller, is_broker = node_id in options.controllers, node_id in options.brokers
    listeners = []
    if is_broker:
        listeners.append(f"PLAINTEXT://{address_of(node_id)}:{CLIENT_PORT}")
    if is_controller:
        listeners.append(f"CONTROLLER://{quorum_address(node_id)}")
    voters = [f"{id}@{quorum_address(id)}" for id in options.first_voters]
    controllers = [str(quorum_address(id)) for id in options.controllers]
    properties: dict[str, object] = {
        "node.id": node_id,
        "process.roles": ",".join(["controller"] * is_controller + ["broker"] * is_broker),
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "log.dirs": ",".join(data_dirs(options)) if is_broker else DATA,
        "broker.rack": RACKS[node_id % len(RACKS)],
        "broker.session.timeout.ms": session_ms,
        "broker.heartbeat.interval.ms": options.heartbeat_ms,
        "controller.quorum.fetch.max.bytes": options.fetch_max_bytes,
        "controller.quorum.fetch.snapshot.max.bytes": options.fetch_max_bytes,
        "metadata.log.segment.bytes": options.segment_bytes,
        "metadata.log.max.record.bytes.between.snapshots": options.snapshot_bytes,
        "metadata.log.max.snapshot.interval.ms": options.snapshot_interval_ms,
        "metadata.max.retention.bytes": options.retention_bytes,
        "num.partitions": 2,
        "default.replication.factor": 2,
        "leader.imbalance.check.interval.seconds": 20,
        "unclean.leader.election.enable": str(options.unclean).lower(),
        "replica.lag.time.max.ms": options.lag_ms,
        "replica.fetch.backoff.ms": 200,
        "replica.socket.timeout.ms": 3000,
        "replica.high.watermark.checkpoint.interval.ms": 1000,
        "log.flush.offset.checkpoint.interval.ms": 5000,
        "log.retention.check.interval.ms": 1000,
        "log.roll.ms": options.roll_ms,
        "log.index.interval.bytes": options.index_interval_bytes,
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.num.partitions": 3,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        "group.initial.rebalance.delay.ms": 100,
        "group.consumer.session.timeout.ms": GROUPS.session_timeout_ms,
        "group.consumer.heartbeat.interval.ms": GROUPS.heartbeat_interval_ms,
    }
    if options.reads_followers:
        properties["replica.selector.class"] = RACK_AWARE_SELECTOR
    if options.flush_messages is not None:
        properties["log.flush.interval.messages"] = options.flush_messages
    if options.voters_in_log:
        properties["controller.quorum.bootstrap.servers"] = ",".join(controllers)
        properties["controller.quorum.auto.join.enable"] = str(options.auto_join and is_controller).lower()
    else:
        properties["controller.quorum.voters"] = ",".join(voters)
    return load_server_config("".join(f"{name}={value}\n" for name, value in properties.items()))
