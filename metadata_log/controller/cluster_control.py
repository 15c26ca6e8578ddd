"""Registration, heartbeats and controlled shutdown of brokers (KIP-500, KIP-631, KIP-841).

A broker epoch is the offset of the registration record, so it only grows and identifies one incarnation. A
new incarnation starts fenced. Its predecessor's session must have expired, or it must prove that its
predecessor is dead (:mod:`pykraft.metadata_log.incarnations`). It may have lost what its predecessor had not
flushed, or everything; the registration says which, and :mod:`.elections` how partitions change because of
it. This file changes brokers only. The sweep after each change updates the partitions (:mod:`.sweeps`); no
broker is unfenced, or may shut down, before the sweep after its last change is complete.
States of a broker: fenced → active → in controlled shutdown → fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.kafka_protocol.messages.cluster import UnregisterBrokerRequest, UnregisterBrokerResponse
from pykraft.metadata_log.controller.calls.requests import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RegisterControllerRequest,
)
from pykraft.metadata_log.controller.heartbeats import Heartbeats
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.metadata_log.controller.sweeps import Sweeps
from pykraft.metadata_log.image import BrokerRegistration, MetadataImage
from pykraft.metadata_log.incarnations import MOST_SECRETS, proves_death
from pykraft.metadata_log.records import (
    OWN_OFFSET,
    BrokerRegistrationChangeRecord,
    Endpoint,
    FeatureRange,
    LogsLost,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from pykraft.runtime.address import MAX_PORT

MOST_BROKERS = 10_000
MOST_CONTROLLERS = 1000
"""Registrations are kept: a client that invents them must not fill the memory of every node."""
MOST_NAMED = 1000
MAX_NAME_LENGTH = 255
_RESERVED_DIRECTORY_IDS = 100


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """The registration of exactly that incarnation, or STALE_BROKER_EPOCH."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
    if broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {broker.epoch}, not {broker_epoch}"
        )
    return broker


def handle_register_broker(
    image: MetadataImage,
    heartbeats: Heartbeats,
    cluster_id: str,
    request: RegisterBrokerRequest,
    now_ms: int,
) -> ControllerResult[RegisterBrokerResponse]:
    """Register a broker process, fenced; or recognise one that registers a second time."""
    _check_registration(image, cluster_id, request)
    known = image.brokers.get(request.broker_id)
    if known is not None and known.incarnation_id == request.incarnation_id:
        return _register_again(known, request)
    if (
        known is not None
        and heartbeats.has_session(known.id, known.epoch, now_ms)
        and not proves_death(known.incarnation_id, request.dead_incarnation_secrets)
    ):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {known.id} is registered by another process, whose session has not expired yet",
        )
    logs_lost = _logs_lost(known, request)
    return ControllerResult(
        (replace(_registration_record(request, OWN_OFFSET), logs_lost=logs_lost),),
        RegisterBrokerResponse(OWN_OFFSET),
        with_base_offset=lambda response, base_offset: replace(response, broker_epoch=base_offset),
    )


def _logs_lost(known: BrokerRegistration | None, request: RegisterBrokerRequest) -> LogsLost:
    """Return what a new incarnation may have lost of its predecessor's logs.

    The directories of replicas may not be recorded, so one missing directory means that all logs may be lost
    whose directory is not known (:mod:`.elections`).
    Without an earlier registration to compare with, only a broker that names an epoch may still have its
    logs. A loss of the previous registration still applies, and may not be in every partition yet: it applies
    until the broker is unfenced.
    """
    if known is None:
        return LogsLost.TAIL if request.previous_broker_epoch >= 0 else LogsLost.ALL
    if not set(known.log_dirs) <= set(request.log_dirs):
        return LogsLost.ALL
    stopped_in_order = request.previous_broker_epoch == known.epoch
    return max(LogsLost(known.logs_lost), LogsLost.NOTHING if stopped_in_order else LogsLost.TAIL)


def _register_again(
    known: BrokerRegistration, request: RegisterBrokerRequest
) -> ControllerResult[RegisterBrokerResponse]:
    record = replace(
        _registration_record(request, known.epoch),
        fenced=known.fenced,
        in_controlled_shutdown=known.in_controlled_shutdown,
        logs_lost=known.logs_lost,
        offline_log_dirs=known.offline_log_dirs,
        cordoned_log_dirs=known.cordoned_log_dirs,
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
            f"this is cluster {cluster_id}, broker {request.broker_id} is in {request.cluster_id}",
        )
    if request.broker_id < 0:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"broker id {request.broker_id} is negative")
    if request.broker_id not in image.brokers and len(image.brokers) >= MOST_BROKERS:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"{len(image.brokers)} brokers are registered")
    if not request.endpoints:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"broker {request.broker_id} has no listener")
    who = f"broker {request.broker_id}"
    _check_sizes(who, request.endpoints, request.features, request.log_dirs, request.rack)
    if len(request.dead_incarnation_secrets) > MOST_SECRETS:
        count = len(request.dead_incarnation_secrets)
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"the registration names {count} dead predecessors")
    _check_log_dirs(image, request)
    _check_features(image, who, request.features)


def _check_features(image: MetadataImage, who: str, features: Iterable[FeatureRange]) -> None:
    supported = {feature.name: feature for feature in features}
    for name, level in sorted(image.features.items()):
        feature = supported.get(name, FeatureRange(name, 0, 0))
        if not feature.min_level <= level <= feature.max_level:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster runs {name} at level {level}, {who} supports "
                f"{feature.min_level} to {feature.max_level}",
            )


def _check_sizes(
    who: str,
    endpoints: Sequence[Endpoint],
    features: Sequence[FeatureRange],
    log_dirs: Sequence[Uuid] = (),
    rack: str | None = None,
) -> None:
    """Registrations are limited because every node keeps them and every client receives them."""
    names = [rack or "", *(feature.name for feature in features)]
    for endpoint in endpoints:
        names += [endpoint.name, endpoint.host, endpoint.security_protocol]
        if not 0 < endpoint.port <= MAX_PORT:
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION,
                f"{who}: listener {endpoint.name[:40]} has port {endpoint.port}",
            )
    longest_list = max(len(endpoints), len(features), len(log_dirs))
    if longest_list > MOST_NAMED or max(map(len, names)) > MAX_NAME_LENGTH:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"the registration of {who} is too large")


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


def handle_unregister_broker(
    image: MetadataImage, request: UnregisterBrokerRequest
) -> ControllerResult[UnregisterBrokerResponse]:
    """Unregister a broker; it remains a replica of its partitions until they are reassigned.

    A live broker, too, as in Kafka. Its leaderships are moved away as in a reassignment: it stops serving
    when its copy of the log or the response to a heartbeat says so, or when its lease ends
    (:mod:`.leadership`). Then it registers again, if it still runs.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        response = UnregisterBrokerResponse(
            error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
            error_message=f"broker {request.broker_id} is not registered",
        )
        return ControllerResult((), response)
    record = UnregisterBrokerRecord(broker.id, broker.epoch)
    return ControllerResult((record,), UnregisterBrokerResponse(error_message=None))


def handle_register_controller(
    image: MetadataImage, cluster_id: str, request: RegisterControllerRequest
) -> ControllerResult[None]:
    """Register another controller. UNSUPPORTED_VERSION if it cannot run the cluster's feature levels."""
    if request.cluster_id != cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"this is cluster {cluster_id}, controller {request.controller_id} is in {request.cluster_id}",
        )
    is_new = request.controller_id not in image.controllers
    if request.controller_id < 0 or (is_new and len(image.controllers) >= MOST_CONTROLLERS):
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION, f"controller {request.controller_id} is not in this cluster"
        )
    who = f"controller {request.controller_id}"
    _check_sizes(who, request.endpoints, request.features)
    _check_features(image, who, request.features)
    record = RegisterControllerRecord(request.controller_id, request.features, request.endpoints)
    known = image.controllers.get(request.controller_id)
    return ControllerResult(() if known == record else (record,), None)


def handle_broker_heartbeat(
    image: MetadataImage,
    heartbeats: Heartbeats,
    sweeps: Sweeps,
    request: BrokerHeartbeatRequest,
    committed_offset: int,
    now_ms: int,
) -> ControllerResult[BrokerHeartbeatResponse]:
    """Refresh the broker's session and move it to its next state. ``committed_offset`` is inclusive."""
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    heartbeats.handle_heartbeat(
        broker.id, broker.epoch, request.current_metadata_offset, committed_offset, now_ms
    )
    caught_up = request.current_metadata_offset >= broker.last_change_offset
    records: list[Record] = []
    fenced, shut_down = broker.fenced, False

    failed = set(request.offline_log_dirs) & set(broker.online_log_dirs)
    if failed:
        # Alone, so that a broker that waits to be unfenced or to leave waits for the sweep after this, too.
        offline = tuple(it for it in broker.log_dirs if it in failed or it in broker.offline_log_dirs)
        change = BrokerRegistrationChangeRecord(broker.id, broker.epoch, offline_log_dirs=offline)
        return ControllerResult((change,), BrokerHeartbeatResponse(caught_up, fenced, shut_down))
    if request.cordoned_log_dirs is not None and image.supports_cordoned_log_dirs:
        cordoned = tuple(it for it in broker.log_dirs if it in request.cordoned_log_dirs)
        if cordoned != broker.cordoned_log_dirs:
            change = BrokerRegistrationChangeRecord(broker.id, broker.epoch, cordoned_log_dirs=cordoned)
            return ControllerResult((change,), BrokerHeartbeatResponse(caught_up, fenced, shut_down))

    if broker.fenced:
        if request.want_shut_down:
            shut_down = True
        elif not request.want_fence and caught_up and _may_return(heartbeats, sweeps, request, now_ms):
            records = [BrokerRegistrationChangeRecord(broker.id, broker.epoch, fenced=False)]
            fenced = False
    elif request.want_fence and caught_up:
        # Only if it has caught up: otherwise it sent the request before it knew that it is unfenced, and may
        # hold a lease by now.
        records, fenced = build_fence_records(image, [broker.id]), True
        shut_down = request.want_shut_down
    elif request.want_shut_down and not broker.in_controlled_shutdown:
        mark = BrokerRegistrationChangeRecord(broker.id, broker.epoch, in_controlled_shutdown=True)
        records = [mark]
    elif request.want_shut_down and _may_leave(image, heartbeats, sweeps, broker):
        records, fenced, shut_down = build_fence_records(image, [broker.id]), True, True
    elif (
        broker.in_controlled_shutdown
        and not request.want_shut_down
        and caught_up
        and _may_return(heartbeats, sweeps, request, now_ms)
    ):
        # The broker has applied its mark and does not want to shut down: another process asked in its name.
        # (A heartbeat that it sent before its own request has not caught up with the mark.)
        heartbeats.cancel_hand_over(broker.id)
        records = [BrokerRegistrationChangeRecord(broker.id, broker.epoch, in_controlled_shutdown=False)]

    if shut_down:
        # The broker has shut down: the next process with this id need not wait for the session to expire.
        heartbeats.drop(broker.id)
    return ControllerResult(tuple(records), BrokerHeartbeatResponse(caught_up, fenced, shut_down))


def _may_return(heartbeats: Heartbeats, sweeps: Sweeps, request: BrokerHeartbeatRequest, now_ms: int) -> bool:
    """Whether every partition was updated after the broker's last change, and the broker has applied that.

    It must also follow the log: otherwise it would get no lease, and soon be fenced again.
    """
    return (
        sweeps.is_swept(request.broker_id)
        and request.current_metadata_offset >= sweeps.swept_offset(request.broker_id)
        and heartbeats.is_current(request.broker_id, request.broker_epoch, now_ms)
    )


def _may_leave(
    image: MetadataImage, heartbeats: Heartbeats, sweeps: Sweeps, broker: BrokerRegistration
) -> bool:
    """Whether the broker's leaderships were moved where possible, and all active brokers know it."""
    return sweeps.is_swept(broker.id) and heartbeats.is_handed_over(
        broker, image.brokers.values(), image.offset
    )


def build_fence_records(image: MetadataImage, broker_ids: list[int]) -> list[Record]:
    """Fence brokers. The sweep that follows moves their leaderships."""
    return [
        BrokerRegistrationChangeRecord(broker_id, image.brokers[broker_id].epoch, fenced=True)
        for broker_id in broker_ids
    ]
