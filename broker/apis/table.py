"""Everything that brokers and controllers serve: the lists from which ApiVersions is answered."""

from __future__ import annotations

from collections.abc import Mapping

from pykraft.broker.apis import (
    api_versions,
    describe_cluster,
    describe_configs,
    describe_controllers,
    describe_log_dirs,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    forwarded,
    groups,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from pykraft.broker.apis.services import BrokerServices, ControllerServices
from pykraft.broker.serving.api import Api, Message
from pykraft.broker.serving.request_server import HotHandler
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.turns import Turns


async def _never_handled(
    services: BrokerServices, context: RequestContext, request: Message, version: int
) -> Message:
    raise AssertionError("Produce and Fetch are answered by their hot handlers")


def _never_refused(request: Message, version: int, error: KafkaError) -> Message:
    raise AssertionError("Produce and Fetch are answered by their hot handlers")


_HOT = (
    # Advertised from 0, though nobody may send less than 3: see dispatch.Api.
    Api(ApiKey.PRODUCE, 3, 13, _never_handled, _never_refused, advertised_min=0),
    Api(ApiKey.FETCH, 4, 18, _never_handled, _never_refused),
)

_TABLE: tuple[Api[BrokerServices], ...] = (
    list_offsets.API,
    metadata.API,
    find_coordinator.API,
    init_producer_id.API,
    offset_for_leader_epoch.API,
    describe_configs.API,
    describe_cluster.API,
    describe_log_dirs.API,
    list_config_resources.API,
    describe_topic_partitions.API,
    incremental_alter_configs.API,
    *groups.APIS,
    *forwarded.APIS,
)


_CONTROLLER_TABLE: tuple[Api[ControllerServices], ...] = (
    describe_configs.API,
    describe_controllers.API,
    incremental_alter_configs.API,
    *forwarded.APIS,
)


def make_apis() -> tuple[Api[BrokerServices], ...]:
    """What a broker serves, ApiVersions among them."""
    served = (*_HOT, *_TABLE)
    return (*served, api_versions.make_api(served))


def make_controller_apis() -> tuple[Api[ControllerServices], ...]:
    """What a controller serves to clients that talk to it directly (KIP-919), ApiVersions among them."""
    return (*_CONTROLLER_TABLE, api_versions.make_api(_CONTROLLER_TABLE))


def make_hot_handlers(services: BrokerServices, turns: Turns) -> Mapping[ApiKey, HotHandler]:
    """The handlers of Produce and Fetch for one broker, within what a turn of the loop allows."""
    return {
        ApiKey.PRODUCE: produce.ProduceHandler(services.replicas, turns),
        ApiKey.FETCH: fetch.FetchHandler(services.replicas),
    }
