"""AlterConfigs (33): replace all configs of a resource at once. Superseded, but old clients still use it."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
)


@struct
class AlterableConfig:
    name: str = string()
    value: str | None = string(nullable="0+")


@struct
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Message):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@struct
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message(33, versions="0-2", flexible="2+")
class AlterConfigsResponse(Message):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
