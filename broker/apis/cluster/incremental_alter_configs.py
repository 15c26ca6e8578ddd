"""IncrementalAlterConfigs.

Changes of configurations are forwarded to the active controller. The log levels of a node (resource type 8)
are its own: it sets them at once, and they last until the process ends. Of the levels of a node in one
request either all are set or none, and only after the controller has answered. A node also checks its own
``cordoned.log.dirs``, because only it knows the paths of its directories (KIP-1066).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pykraft.broker.apis import forwarded
from pykraft.broker.apis.services import NodeServices
from pykraft.broker.logs.log_dirs import check_cordoned
from pykraft.broker.serving.api import ReceivedRequest
from pykraft.configuration.keys import split_list
from pykraft.kafka_protocol.codec.pace import MAX_ITEMS
from pykraft.kafka_protocol.codec.schema import Body, Message
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.broker_configs import CORDONED_LOG_DIRS
from pykraft.runtime.loggers import LEVELS, ROOT


async def forward(
    services: NodeServices, context: RequestContext, received: ReceivedRequest[IncrementalAlterConfigsRequest]
) -> Message | bytes:
    """The active controller's answer, joined with that of this node for its loggers."""
    request, version, slices = received.request, received.version, services.slices
    parts = _Parts()
    await slices.finish(parts.sort(services, request.resources))
    if not parts.own and not parts.refused:
        return await forwarded.forward(services, context, received)
    answers = parts.refused
    if parts.others:
        rest = IncrementalAlterConfigsRequest(resources=parts.others, validate_only=request.validate_only)
        encoded = Body()
        await slices.finish(rest.encode_in_slices(version, encoded))
        passed_on = ReceivedRequest(IncrementalAlterConfigsRequest, version, encoded.to_bytes())
        body = await forwarded.forward(services, context, passed_on)
        decoding = IncrementalAlterConfigsResponse.decode_in_slices(body, version, MAX_ITEMS)
        answers += (await slices.result(decoding)).responses
    if parts.own:
        await slices.finish(_alter_levels(services, parts.own, request.validate_only, answers))
    return IncrementalAlterConfigsResponse(responses=answers)


class _Parts:
    """A request in parts: ``own`` for this node, its errors, and the others to be passed on."""

    def __init__(self) -> None:
        self.own: list[AlterConfigsResource] = []
        self.refused: list[AlterConfigsResourceResponse] = []
        self.others: list[AlterConfigsResource] = []

    def sort(self, services: NodeServices, resources: Iterable[AlterConfigsResource]) -> Iterator[None]:
        """Yields after each resource."""
        for resource in resources:
            if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
                self.own.append(resource)
            elif objection := _objection(services, resource):
                self.refused.append(_answer(resource, ErrorCode.INVALID_CONFIG, objection))
            else:
                self.others.append(resource)
            yield


def _objection(services: NodeServices, resource: AlterConfigsResource) -> str | None:
    """Why this node cannot have the directories that a resource wants to be cordoned."""
    if (resource.resource_type, resource.resource_name) != (
        ConfigResourceType.BROKER,
        str(services.metadata.node_id),
    ):
        return None
    properties = services.server_properties
    log_dirs = split_list(properties.get("log.dirs") or properties.get("log.dir") or "")
    if not log_dirs:
        return None
    for entry in resource.configs:
        if (
            entry.name == CORDONED_LOG_DIRS
            and entry.config_operation in (ConfigOperation.SET, ConfigOperation.APPEND)
            and entry.value is not None
        ):
            return check_cordoned(split_list(entry.value), log_dirs)
    return None


def _alter_levels(
    services: NodeServices,
    resources: Sequence[AlterConfigsResource],
    validate_only: bool,
    answers: list[AlterConfigsResourceResponse],
) -> Iterator[None]:
    """Set the levels, or none if there is an error, and add the answers; yields after each."""
    code, message = ErrorCode.NONE, None
    try:
        if len(resources) > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a request must name the loggers of a node once")
        levels = _check(services, resources[0])
        if not validate_only:
            for name, level in levels.items():
                services.loggers.set_level(name, level)
    except KafkaError as error:
        code, message = error.code, error.message
    for resource in resources:
        answers.append(_answer(resource, code, message))
        yield


def _check(services: NodeServices, resource: AlterConfigsResource) -> dict[str, str | None]:
    """The level of each logger in the request; None: that of the logger above it."""
    node_id = services.metadata.node_id
    if resource.resource_name != str(node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"this is node {node_id}, not {resource.resource_name[:40]}"
        )
    known, levels = services.loggers.levels(), dict[str, str | None]()
    for entry in resource.configs:
        name = entry.name
        if name in levels:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"logger {name[:100]} is named more than once")
        if entry.config_operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a log level can only be set or deleted")
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no logger {name[:100]}")
        levels[name] = None
        if entry.config_operation == ConfigOperation.SET:
            if entry.value not in LEVELS:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, f"the level of {name} must be one of {', '.join(LEVELS)}"
                )
            levels[name] = entry.value
        elif name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the level of the root logger can only be set")
    return levels


def _answer(
    resource: AlterConfigsResource, code: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
