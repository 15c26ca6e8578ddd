"""One error for everything that a request asks, in the response of its API.

The message tables tell where the error belongs: in the response's own ``error_code`` if the version has one,
else in one element for each topic, partition, resource or group that the request names, with the fields that
name it. A response whose version has no place for an error carries none.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import cache
from typing import Any, Final, TypeVar

from pykraft.kafka_protocol.codec.field_types import FieldSpec
from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.lazy_dataclass import dataclass

R = TypeVar("R", bound=Message)

_CODE: Final = "error_code"
_TEXT: Final = "error_message"
_NAMES: Final = frozenset(
    {
        "index",
        "name",
        "topic",
        "topic_id",
        "partition",
        "partition_id",
        "partition_index",
        "group_id",
        "resource_name",
        "resource_type",
    }
)
"""The fields by which messages name what a client asked about."""


@dataclass(frozen=True, slots=True)
class _Lists:
    """Items of the request, and the elements of the response that answer them one by one."""

    asked: str
    answered: str
    element: Any
    copied: tuple[FieldSpec, ...]
    """The names that an element and an item share; for an item that is itself a name, that one."""


def error_answer_in_slices(request: Request[R], version: int, error: KafkaError) -> Generator[None, None, R]:
    """The response to ``request`` with ``error`` for everything it asked; yields after each element."""
    answer = request.RESPONSE()
    yield from _set_error(answer, request, version, error)
    return answer


def has_own_error(response: type[Message], version: int) -> bool:
    """Whether the response has a place for one error, whatever the request asked."""
    table: Any = response
    return _CODE in _fields(table, version)


def _set_error(answer: Any, asked: Any, version: int, error: KafkaError) -> Generator[None, None, None]:
    answer_type: Any = type(answer)
    asked_type: Any = type(asked)
    fields = _fields(answer_type, version)
    if _CODE in fields:
        answer.error_code = error.code
        if _TEXT in fields:
            answer.error_message = error.message
        return
    lists = _find_lists(answer_type, asked_type, version)
    if lists is not None:
        elements: list[Any] = []
        setattr(answer, lists.answered, elements)
        for item in getattr(asked, lists.asked) or ():
            element = _element(lists, item, version)
            yield from _set_error(element, item, version, error)
            elements.append(element)
            yield


def _element(lists: _Lists, item: Any, version: int) -> Any:
    element = lists.element()
    for spec in lists.copied:
        name = getattr(item, spec.name) if hasattr(item, "FIELDS") else item
        if name is not None or version in spec.nullable:
            setattr(element, spec.name, name)
    return element


@cache
def _find_lists(answer: Any, asked: Any, version: int) -> _Lists | None:
    for items in _arrays(_fields(asked, version).values()):
        of_items = _fields(items.element, version) if isinstance(items.element, type) else None
        for elements in _arrays(_fields(answer, version).values()):
            if not isinstance(elements.element, type):
                continue
            names = [spec for spec in _fields(elements.element, version).values() if spec.name in _NAMES]
            copied = names[:1] if of_items is None else [spec for spec in names if spec.name in of_items]
            if copied and _holds_error(elements.element, version):
                return _Lists(items.name, elements.name, elements.element, tuple(copied))
    return None


def _holds_error(struct: Any, version: int) -> bool:
    fields = _fields(struct, version)
    nested = (spec.element for spec in _arrays(fields.values()) if isinstance(spec.element, type))
    return _CODE in fields or any(_holds_error(element, version) for element in nested)


def _arrays(specs: Iterable[FieldSpec]) -> Iterable[FieldSpec]:
    return (spec for spec in specs if spec.kind == "array")


@cache
def _fields(struct: Any, version: int) -> dict[str, FieldSpec]:
    return {spec.name: spec for spec in getattr(struct, "FIELDS", ()) if version in spec.versions}
