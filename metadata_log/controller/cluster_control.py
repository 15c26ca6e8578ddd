"""Brokers join, report, and leave: registration and heartbeats (KIP-500, KIP-631, KIP-841).

A broker epoch is the offset of the registration record, so it only grows and names one incarnation. A new
incarnation may have lost what its predecessor had not flushed; it is therefore taken out of every ISR in the
batch that registers it, unless it is all there is. States: fenced → active → in controlled shutdown → fenced.
"""

from __future__ import annotations

from dataclasses import replace

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import uuid_to_str
from pykraft.metadata_log.controller.elections import (
    build_leaving_records,
    build_returning_records,
    leads_any,
)
from pykraft.metadata_log.controller.heartbeats import Heartbeats
from pykraft.metadata_log.controller.requests import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.metadata_log.image import BrokerRegistration, MetadataImage
from pykraft.metadata_log.records import (
    OWN_OFFSET,
    BrokerRegistrationChangeRecord,
    Record,
    RegisterBrokerRecord,
)

_RESERVED_DIRECTORY_IDS = 100


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """The registration of exactly that incarnation, else STALE_BROKER_EPOCH."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
    if broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {broker.epoch}, not {broker_epoch}"
        )
    return broker


def handle_register_broker(
    image: MetadataImage, heartbeats: Heartbeats, cluster_id: str, request: RegisterBrokerRequest, now_ms: int
) -> ControllerResult[RegisterBrokerResponse]:
    """Accept a broker process, fenced; or recognise one that registers a second time."""
    _check_registration(image, cluster_id, request)
    known = image.brokers.get(request.broker_id)
    if known is not None and known.incarnation_id == request.incarnation_id:
        return _register_again(known, request)
    if known is not None and heartbeats.has_session(known.id, known.epoch, now_ms):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {known.id} is registered by another process, whose session has not lapsed yet",
        )
    records: list[Record] = [_registration_record(request, OWN_OFFSET)]
    records += build_leaving_records(image, frozenset({request.broker_id}))
    return ControllerResult(
        tuple(records),
        RegisterBrokerResponse(OWN_OFFSET),
        with_base_offset=lambda response, base_offset: replace(response, broker_epoch=base_offset),
    )


def _register_again(
    known: BrokerRegistration, request: RegisterBrokerRequest
) -> ControllerResult[RegisterBrokerResponse]:
    record = replace(
        _registration_record(request, known.epoch),
        fenced=known.fenced,
        in_controlled_shutdown=known.in_controlled_shutdown,
    )
    changed = (record.endpoints, record.features, record.rack, record.log_dirs) != (
        known.endpoints,
        known.features,
        known.rack,
        known.log_dirs,
    )
    return ControllerResult((record,) if changed else (), RegisterBrokerResponse(known.epoch))


def _registration_record(request: RegisterBrokerRequest, broker_epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=broker_epoch,
        endpoints=request.endpoints,
        features=request.features,
        rack=request.rack,
        log_dirs=request.log_dirs,
    )


def _check_registration(image: MetadataImage, cluster_id: str, request: RegisterBrokerRequest) -> None:
    if request.cluster_id != cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"this is cluster {cluster_id}, broker {request.broker_id} belongs to {request.cluster_id}",
        )
    if request.broker_id < 0:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"broker id {request.broker_id} is negative")
    if not request.endpoints:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"broker {request.broker_id} has no listener")
    _check_log_dirs(image, request)
    for feature in request.features:
        level = image.features.get(feature.name, 0)
        if level and not feature.min_level <= level <= feature.max_level:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster runs {feature.name} at level {level}, broker {request.broker_id} supports "
                f"{feature.min_level} to {feature.max_level}",
            )


def _check_log_dirs(image: MetadataImage, request: RegisterBrokerRequest) -> None:
    def refuse(reason: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REGISTRATION, f"broker {request.broker_id}: {reason}")

    if not request.log_dirs:
        raise refuse("no log directory was named")
    if len(set(request.log_dirs)) != len(request.log_dirs):
        raise refuse("a log directory is named twice")
    for directory in request.log_dirs:
        if len(directory) != 16 or int.from_bytes(directory, "big") < _RESERVED_DIRECTORY_IDS:
            raise refuse(f"{uuid_to_str(directory)} is not a usable directory id")
    for broker_id in sorted(image.brokers):
        shared = set(request.log_dirs) & set(image.brokers[broker_id].log_dirs)
        if broker_id != request.broker_id and shared:
            raise refuse(f"log directory {uuid_to_str(min(shared))} belongs to broker {broker_id}")


def handle_broker_heartbeat(
    image: MetadataImage, heartbeats: Heartbeats, request: BrokerHeartbeatRequest, now_ms: int
) -> ControllerResult[BrokerHeartbeatResponse]:
    """Refresh the broker's session and move it to its next state."""
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    heartbeats.touch(broker.id, broker.epoch, now_ms)
    caught_up = request.current_metadata_offset >= broker.last_change_offset
    records: list[Record] = []
    fenced, shut_down = broker.fenced, False

    if broker.fenced:
        if request.want_shut_down:
            shut_down = True
        elif not request.want_fence and caught_up:
            records, fenced = build_unfence_records(image, broker), False
    elif request.want_fence:
        records, fenced = build_fence_records(image, [broker.id]), True
        shut_down = request.want_shut_down
    elif request.want_shut_down and not leads_any(image, broker.id):
        records, fenced, shut_down = build_fence_records(image, [broker.id]), True, True
    elif request.want_shut_down and not broker.in_controlled_shutdown:
        records = build_controlled_shutdown_records(image, broker)

    if shut_down:
        # It said good-bye: the next process under this id need not wait for the session to lapse.
        heartbeats.drop(broker.id)
    return ControllerResult(tuple(records), BrokerHeartbeatResponse(caught_up, fenced, shut_down))


def build_fence_records(image: MetadataImage, broker_ids: list[int]) -> list[Record]:
    """Fence brokers and move what they led, as one batch."""
    records: list[Record] = [*build_leaving_records(image, frozenset(broker_ids))]
    for broker_id in broker_ids:
        epoch = image.brokers[broker_id].epoch
        records.append(BrokerRegistrationChangeRecord(broker_id, epoch, fenced=True))
    return records


def build_unfence_records(image: MetadataImage, broker: BrokerRegistration) -> list[Record]:
    """Unfence a broker and let it lead what only it can lead."""
    unfence = BrokerRegistrationChangeRecord(broker.id, broker.epoch, fenced=False)
    # A broker that is unfenced while marked as shutting down may still not lead.
    returning = [] if broker.in_controlled_shutdown else build_returning_records(image, broker.id)
    return [unfence, *returning]


def build_controlled_shutdown_records(image: MetadataImage, broker: BrokerRegistration) -> list[Record]:
    """Mark a broker as shutting down and move what it leads to others where there are any."""
    mark = BrokerRegistrationChangeRecord(broker.id, broker.epoch, in_controlled_shutdown=True)
    return [mark, *build_leaving_records(image, frozenset({broker.id}))]
