"""Messages about configurations."""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    Request,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    response_to,
    string,
    struct,
)


@struct
class DescribeConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array("string", nullable="0+", distinct=True)


@message(32, versions="1-4", flexible="4+")
class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    """DescribeConfigs (32): configuration of topics, brokers and groups, with where values come from.

    Version 1 adds the source and the synonyms of each value, 3 types and documentation. A list of keys that
    is null or empty asks for all keys.
    """

    resources: list[DescribeConfigsResource] = array(
        DescribeConfigsResource, distinct=("resource_type", "resource_name")
    )
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean("3+")


@struct
class DescribeConfigsSynonym:
    name: str = string()
    value: str | None = string(nullable="0+")
    source: int = int8()


@struct
class DescribeConfigsResourceResult:
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8("3+")
    documentation: str | None = string("3+", nullable="3+")


@struct
class DescribeConfigsResult:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@response_to(DescribeConfigsRequest)
class DescribeConfigsResponse(Message):
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


@struct
class AlterableConfig:
    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


@struct
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
    """IncrementalAlterConfigs (44): set, delete, append to or subtract from single configs.

    The operation is 0 set, 1 delete, 2 append, 3 subtract. Keys that are not named keep their value, which is
    what sets this API apart from AlterConfigs.
    """

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@struct
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@response_to(IncrementalAlterConfigsRequest)
class IncrementalAlterConfigsResponse(Message):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


@struct
class LegacyAlterableConfig:
    name: str = string()
    value: str | None = string(nullable="0+")


@struct
class LegacyAlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[LegacyAlterableConfig] = array(LegacyAlterableConfig)


@message(33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Request["AlterConfigsResponse"]):
    """AlterConfigs (33): replace all configs of a resource. Superseded, but old clients still use it."""

    resources: list[LegacyAlterConfigsResource] = array(LegacyAlterConfigsResource)
    validate_only: bool = boolean()


@response_to(AlterConfigsRequest)
class AlterConfigsResponse(Message):
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


@message(74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"]):
    """ListConfigResources (74): the resources that have configurations of their own.

    Version 0 lists client metrics only; 1 names the types of resources wanted, where an empty list means all.
    """

    resource_types: list[int] = array("int8", "1+", distinct=True)


@struct
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


@response_to(ListConfigResourcesRequest)
class ListConfigResourcesResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
