"""Why there is no page: the status, and what to tell."""

from __future__ import annotations

from typing import Final, NamedTuple

from pykraft.kafka_client.errors import ConnectionFailedError, MaybeWrittenError, ProduceError
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.node.web.console.cluster_calls import BusyError
from pykraft.node.web.console.page import NotFoundError, explain
from pykraft.node.web.console.parameters import BadParameterError


class NotReadyError(Exception):
    """There is nobody to ask yet."""


class Failure(NamedTuple):
    status: int
    title: str
    text: str


EXPECTED: Final = (BadParameterError, NotFoundError, BusyError, NotReadyError, TimeoutError, KafkaError)
NO_PAGE: Final = Failure(404, "No such page", "The console has no page at this address.")
NO_PRODUCING: Final = Failure(
    403, "Not allowed", "The console of this node does not produce: pykraft.http.console is read-only."
)
CONTROLLER_ONLY: Final = Failure(
    404, "Not here", "This node is a controller only, which knows the quorum: ask a broker for anything else."
)
NO_FORM: Final = Failure(415, "Not a form", "Records are given as a form of the console's own page.")


def failure_of(error: Exception) -> Failure:
    """Of one that is :data:`EXPECTED`."""
    match error:
        case BadParameterError():
            return Failure(400, "Not a valid request", f"{str(error)[:1].upper()}{str(error)[1:]}.")
        case NotFoundError():
            return Failure(404, "Not found", str(error))
        case BusyError():
            return Failure(503, "Busy", "Too many pages are being made at once. Try again in a moment.")
        case NotReadyError():
            return Failure(503, "Not ready", "This node does not serve yet, and knows no other to ask.")
        case MaybeWrittenError():
            return Failure(504, "Unknown outcome", f"The record may or may not be written. {explain(error)}")
        case ProduceError():
            return Failure(502, "Not written", f"The record was not written. {explain(error)}")
        case ConnectionFailedError():
            return Failure(503, "No broker answers", explain(error))
        case KafkaError(code=ErrorCode.LEADER_NOT_AVAILABLE):
            return Failure(503, "No leader", explain(error))
        case KafkaError() if error.code is not ErrorCode.REQUEST_TIMED_OUT:
            return Failure(502, "The cluster refuses", explain(error))
    text = explain(error) if isinstance(error, KafkaError) else "The page took too long, and was given up."
    return Failure(504, "No answer in time", f"{text} Is a majority of the controllers running?")
