"""ListConfigResources (74): the resources that have configurations of their own.

Version 0 lists client metrics only; 1 names the types of resources wanted, where an empty list means all.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import Message, array, int8, int16, int32, message, string, struct


@message(74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Message):
    resource_types: list[int] = array("int8", "1+", distinct=True)


@struct
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


@message(74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
