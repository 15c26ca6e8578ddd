"""Forwarding: requests that only the active controller can answer are passed on to it by any broker.

The bytes of request and answer are passed on unchanged, with the caller's identity. While a controller is
being elected the broker retries within the client's timeout. A topic that an earlier attempt created, at a
controller that failed before it could answer, is answered as created. The answer waits, for a second at most,
until the broker has applied the metadata that it is based on.

The controller works on large requests in slices, so that a request may be done in part if the controller
fails. One for more than 10,000 new partitions, or 10,000 changes of configurations, is refused as a whole
(POLICY_VIOLATION). Kafka does all of a request or nothing, and refuses one that needs more than 10,000
records, such as 5,001 topics with a partition each.

A configuration of a broker that does not exist is refused (INVALID_CONFIG); Kafka stores it. A broker that
runs while it is unregistered registers again at once; Kafka's stays away until it restarts.
"""

from __future__ import annotations

from typing import Any

from pykraft.broker.apis.services import NodeServices
from pykraft.broker.serving.api import ReceivedRequest
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.controller.calls.forwarding import LONGEST_WAIT_MS, wait_ms


async def forward(services: NodeServices, context: RequestContext, received: ReceivedRequest[Any]) -> bytes:
    """The active controller's answer. :class:`KafkaError` if it refused, or if none answered in time."""
    return await services.controller.forward(
        context,
        received.api_key,
        received.version,
        received.body,
        LONGEST_WAIT_MS,
        own_timeout_ms=lambda: wait_ms(received.request),
    )
