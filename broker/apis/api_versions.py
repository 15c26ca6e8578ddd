"""ApiVersions.

Lists exactly the APIs in the table of served APIs, and the features of the cluster. A version newer than ours
is answered in the encoding of version 0, with UNSUPPORTED_VERSION (35) and our range, so that any client can
fall back to an older version. The response header is always version 0. It needs no authentication, and a
fenced broker answers it as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pykraft.broker.apis.services import NodeServices
from pykraft.broker.serving.api import Api, HandledApi
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.features import KRAFT_VERSION, SUPPORTED_FEATURES

_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def make_api(
    served: Iterable[Api[Any, Any, Any]],
) -> HandledApi[NodeServices, ApiVersionsRequest, ApiVersionsResponse]:
    """The ApiVersions entry for a table of ``served`` APIs; it lists itself too."""
    others = tuple(served)

    async def handle(
        services: NodeServices, context: RequestContext, request: ApiVersionsRequest, version: int
    ) -> ApiVersionsResponse:
        if version >= 3:
            for text in (request.client_software_name, request.client_software_version):
                if not _SOFTWARE_NAME.fullmatch(text):
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text!r} is not a client software name")
        features = {**services.metadata.image.features, KRAFT_VERSION: services.kraft_version()}
        return ApiVersionsResponse(
            api_keys=_ranges((*others, api)),
            # Versions before 4 cannot express a minimum of 0, and require such features to be left out.
            supported_features=[
                SupportedFeatureKey(name=name, min_version=low, max_version=high)
                for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
                if low > 0 or version >= 4
            ],
            finalized_features_epoch=services.metadata.image.offset,
            finalized_features=[
                FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in sorted(features.items())
                if level > 0
            ],
        )

    def build_error(request: ApiVersionsRequest, version: int, error: KafkaError) -> ApiVersionsResponse:
        keys = _ranges([api]) if error.code is ErrorCode.UNSUPPORTED_VERSION else []
        return ApiVersionsResponse(error_code=error.code, api_keys=keys)

    api = HandledApi(ApiVersionsRequest, ApiVersionsResponse, handle, build_error=build_error)
    return api


def _ranges(apis: Iterable[Api[Any, Any, Any]]) -> list[ApiVersion]:
    return [
        ApiVersion(
            api_key=api.key,
            min_version=api.min_version if api.advertised_min is None else api.advertised_min,
            max_version=api.max_version,
        )
        for api in sorted(apis, key=lambda api: api.key)
    ]
