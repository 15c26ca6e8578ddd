"""A page: parameters that are checked first, facts asked of the cluster; and why there is no page."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import ClassVar, Final, NamedTuple, Protocol, Self, TypeVar

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.errors import ConnectionFailedError, MaybeWrittenError, ProduceError
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.lazy_dataclass import dataclass
from pykraft.node.web.console.cluster_calls import BusyError, CallLimits
from pykraft.node.web.console.parameters import BadParameterError, Parameters

T = TypeVar("T")

Facts = Mapping[str, object]
"""What a template is filled with."""


class Page(Protocol):
    """``TEMPLATE`` is its file; ``TAB`` the path of the tab that it belongs to."""

    TEMPLATE: ClassVar[str]
    TAB: ClassVar[str]

    @classmethod
    def parse(cls, parameters: Parameters, path: Mapping[str, str]) -> Self:
        """From the query and the parts of the path. :class:`BadParameterError`; :class:`NotFoundError`."""
        ...

    async def load(self, admin: Admin, limits: CallLimits) -> Facts:
        """:class:`KafkaError` if there is nothing to show; :class:`NotFoundError`."""
        ...


class NotFoundError(Exception):
    """The message says what does not exist."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a part of a page is missing."""

    text: str


async def part(asked: Awaitable[T]) -> T | Problem:
    """Ask for a part that a page can do without: its error is shown in its place."""
    try:
        return await asked
    except KafkaError as error:
        return Problem(explain(error))


async def found(asked: Awaitable[T], what: str) -> T:
    """:class:`NotFoundError` if the cluster knows no ``what``."""
    try:
        return await asked
    except KafkaError as error:
        if error.code in _MISSING:
            raise NotFoundError(f"There is no {what}.") from error
        raise


_MISSING = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND))


def explain(error: KafkaError) -> str:
    """In a sentence."""
    text = error.message or error.code.name
    return text if error.code.name in text else f"{text} ({error.code.name})"


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
    """The failure that an :data:`EXPECTED` error stands for."""
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
