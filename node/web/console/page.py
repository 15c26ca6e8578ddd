"""What a page is: parameters that are checked first, and facts that are asked of the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import ClassVar, Protocol, Self, TypeVar

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.lazy_dataclass import dataclass
from pykraft.node.web.console.cluster_calls import CallLimits
from pykraft.node.web.console.parameters import Parameters

T = TypeVar("T")

Facts = Mapping[str, object]
"""What a template is filled with."""


class Page(Protocol):
    """``TEMPLATE`` is its file; ``TAB`` the path of the tab that it belongs to."""

    TEMPLATE: ClassVar[str]
    TAB: ClassVar[str]

    @classmethod
    def parse(cls, parameters: Parameters, path: Mapping[str, str]) -> Self:
        """Of the query, and of the parts of the path. :class:`BadParameterError`; :class:`NotFoundError`."""
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
    """What a page can do without: its error is shown in its place."""
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
