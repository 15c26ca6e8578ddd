"""The controller's calls on the wire: decodes protobuf, runs a command, encodes its response.

A :class:`KafkaError` of a command becomes the response's error code here. Every response names the leader
that this node knows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sized
from typing import Any, Final

from google.protobuf.message import DecodeError

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.controller.alter_partition import (
    MAX_ISR_MEMBERS_PER_REQUEST,
    MAX_PARTITIONS_PER_REQUEST,
)
from pykraft.metadata_log.controller.calls import requests as r
from pykraft.metadata_log.controller.cluster_control import MOST_NAMED
from pykraft.metadata_log.controller.directories import MAX_ASSIGNMENTS_PER_REQUEST
from pykraft.metadata_log.controller.driver import ControllerDriver
from pykraft.metadata_log.controller.lost_replicas import MAX_LOST_PER_REQUEST
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.metadata_log.records import Endpoint, FeatureRange
from pykraft.runtime.rpc import RpcHandler, RpcServer

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Controller"].full_name

Serve = Callable[[ControllerDriver, Any], Awaitable[Any]]


def register(server: RpcServer, driver: ControllerDriver) -> None:
    """Serve the controller's calls on a node's CONTROLLER listener."""
    calls: dict[str, Serve] = {
        "RegisterBroker": _register_broker,
        "RegisterController": _register_controller,
        "BrokerHeartbeat": _broker_heartbeat,
        "AlterPartition": _alter_partition,
        "ReportLostReplicas": _report_lost_replicas,
        "AssignReplicasToDirs": _assign_replicas_to_dirs,
        "AllocateProducerIds": _allocate_producer_ids,
        "Forward": _forward,
    }
    for name, serve in calls.items():
        classes = (getattr(pb, f"{name}Request"), getattr(pb, f"{name}Response"))
        server.register(f"/{_SERVICE}/{name}", _handler(driver, *classes, serve))


def _handler(driver: ControllerDriver, request_class: Any, response_class: Any, serve: Serve) -> RpcHandler:
    async def handle(payload: bytes) -> bytes:
        try:
            response = await serve(driver, request_class.FromString(payload))
        except KafkaError as error:
            response = response_class(error_code=error.code, error_message=error.message)
        except DecodeError as error:
            response = response_class(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error))
        leader = driver.leader
        response.leader_id = -1 if leader.leader_id is None else leader.leader_id
        response.leader_epoch = leader.epoch
        return bytes(response.SerializeToString())

    return handle


def _check_count(items: Sized, most: int, what: str) -> None:
    """Before objects are made of them: a message of a stranger may have a million."""
    if len(items) > most:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"more than {most} {what} in one request")


def _uuid(value: bytes, what: str) -> Uuid:
    if len(value) != 16:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} has {len(value)} bytes, not 16")
    return Uuid(value)


def _endpoints(messages: Collection[pb.Endpoint]) -> tuple[Endpoint, ...]:
    _check_count(messages, MOST_NAMED, "endpoints")
    return tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in messages)


def _features(messages: Collection[pb.Feature]) -> tuple[FeatureRange, ...]:
    _check_count(messages, MOST_NAMED, "features")
    return tuple(FeatureRange(f.name, f.min_level, f.max_level) for f in messages)


def _directories(ids: Collection[bytes]) -> tuple[Uuid, ...]:
    _check_count(ids, MOST_NAMED, "log directories")
    return tuple(_uuid(it, "a log directory id") for it in ids)


_CHECKED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "cordoned_log_dirs": lambda known: _directories(known.ids),
    "dead_incarnation_secrets": tuple,
    "endpoints": _endpoints,
    "features": _features,
    "incarnation_id": lambda value: _uuid(value, "the incarnation id"),
    "log_dirs": _directories,
    "offline_log_dirs": _directories,
    "topic_id": lambda value: _uuid(value, "a topic id"),
}
_OPTIONAL: Final = {"cordoned_log_dirs", "leader_epoch", "rack"}


def _read(request: Any, message: Any) -> Any:
    """A message as the request (or part of one) with fields of the same names; None for what is not set."""
    values = {}
    for name in request.__match_args__:
        value = None if name in _OPTIONAL and not message.HasField(name) else getattr(message, name)
        values[name] = _CHECKED[name](value) if name in _CHECKED and value is not None else value
    return request(**values)


async def _register_broker(
    driver: ControllerDriver, message: pb.RegisterBrokerRequest
) -> pb.RegisterBrokerResponse:
    response = await driver.register_broker(_read(r.RegisterBrokerRequest, message))
    return pb.RegisterBrokerResponse(broker_epoch=response.broker_epoch)


async def _register_controller(
    driver: ControllerDriver, message: pb.RegisterControllerRequest
) -> pb.RegisterControllerResponse:
    await driver.register_controller(_read(r.RegisterControllerRequest, message))
    return pb.RegisterControllerResponse()


async def _broker_heartbeat(
    driver: ControllerDriver, message: pb.BrokerHeartbeatRequest
) -> pb.BrokerHeartbeatResponse:
    response = await driver.broker_heartbeat(_read(r.BrokerHeartbeatRequest, message))
    return pb.BrokerHeartbeatResponse(
        is_caught_up=response.is_caught_up,
        is_fenced=response.is_fenced,
        should_shut_down=response.should_shut_down,
        lease_ms=response.lease_ms,
    )


async def _alter_partition(
    driver: ControllerDriver, message: pb.AlterPartitionRequest
) -> pb.AlterPartitionResponse:
    _check_count(message.topics, MAX_PARTITIONS_PER_REQUEST, "topics")
    partitions = sum(len(topic.partitions) for topic in message.topics)
    _check_count(range(partitions), MAX_PARTITIONS_PER_REQUEST, "partitions")
    members = sum(len(partition.new_isr) for topic in message.topics for partition in topic.partitions)
    _check_count(range(members), MAX_ISR_MEMBERS_PER_REQUEST, "members of ISRs")
    changes = tuple(
        r.PartitionIsrChange(
            topic_id=_uuid(topic.topic_id, "a topic id"),
            index=partition.index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr=tuple(r.IsrMember(m.broker_id, m.broker_epoch) for m in partition.new_isr),
        )
        for topic in message.topics
        for partition in topic.partitions
    )
    request = r.AlterPartitionRequest(message.broker_id, message.broker_epoch, changes)
    response = await driver.alter_partition(request)
    topics: dict[Uuid, pb.AlterPartitionTopicResult] = {}
    for result in response.partitions:
        topic = topics.setdefault(result.topic_id, pb.AlterPartitionTopicResult(topic_id=result.topic_id))
        topic.partitions.append(
            pb.AlterPartitionPartitionResult(
                index=result.index,
                error_code=result.error,
                leader=result.leader,
                leader_epoch=result.leader_epoch,
                isr=result.isr,
                eligible_leader_replicas=result.elr,
                partition_epoch=result.partition_epoch,
            )
        )
    return pb.AlterPartitionResponse(topics=list(topics.values()))


async def _report_lost_replicas(
    driver: ControllerDriver, message: pb.ReportLostReplicasRequest
) -> pb.ReportLostReplicasResponse:
    _check_count(message.partitions, MAX_LOST_PER_REQUEST, "lost replicas")
    lost = tuple(_read(r.LostReplica, item) for item in message.partitions)
    response = await driver.report_lost_replicas(
        r.ReportLostReplicasRequest(message.broker_id, message.broker_epoch, lost)
    )
    return pb.ReportLostReplicasResponse(
        partitions=[
            pb.LostReplicaResult(
                topic_id=result.topic_id,
                index=result.index,
                error_code=result.error,
                partition_epoch=result.partition_epoch,
            )
            for result in response.partitions
        ]
    )


async def _assign_replicas_to_dirs(
    driver: ControllerDriver, message: pb.AssignReplicasToDirsRequest
) -> pb.AssignReplicasToDirsResponse:
    _check_count(message.assignments, MAX_ASSIGNMENTS_PER_REQUEST, "replicas")
    assignments = tuple(
        r.ReplicaDirectory(
            _uuid(item.topic_id, "a topic id"),
            item.index,
            _uuid(item.directory_id, "a log directory id"),
        )
        for item in message.assignments
    )
    response = await driver.assign_replicas_to_dirs(
        r.AssignReplicasToDirsRequest(message.broker_id, message.broker_epoch, assignments)
    )
    return pb.AssignReplicasToDirsResponse(errors=response.errors)


async def _allocate_producer_ids(
    driver: ControllerDriver, message: pb.AllocateProducerIdsRequest
) -> pb.AllocateProducerIdsResponse:
    response = await driver.allocate_producer_ids(_read(r.AllocateProducerIdsRequest, message))
    return pb.AllocateProducerIdsResponse(start=response.start, length=response.length)


async def _forward(driver: ControllerDriver, message: pb.ForwardRequest) -> pb.ForwardResponse:
    context = RequestContext(
        principal=message.principal,
        listener=message.listener,
        client_id=message.client_id,
        client_address=message.client_address,
        request_id=message.request_id,
        attempt=message.attempt,
    )
    body = await driver.forward(
        context, message.api_key, message.api_version, message.body, message.timeout_ms
    )
    return pb.ForwardResponse(body=body, metadata_end_offset=driver.committed_image.offset + 1)
