"""ApiVersions (18): which APIs and features a node serves. The first request on most connections.

The one API that is answered even when its version is not supported: the answer is then a version 0 body with
UNSUPPORTED_VERSION and at least this API's own range. Whatever the version, the response is sent with
response header 0, because a client reads it before it knows which versions the server supports.

Version 3 is flexible and adds the client's name and the feature lists. Up to version 3 a feature whose
minimum is 0 must not be listed; version 4 lifts that.
"""

from __future__ import annotations

from pykraft.kafka_protocol.codec.schema import (
    Message,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)


@message(18, versions="0-4", flexible="3+")
class ApiVersionsRequest(Message):
    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


@struct
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@struct
class SupportedFeatureKey:
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@struct
class FinalizedFeatureKey:
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@message(18, versions="0-4", flexible="3+")
class ApiVersionsResponse(Message):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)
