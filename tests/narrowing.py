"""Checks that a value has the type that a test expects, and narrows it for the type checker."""

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """The value, which is not None."""
    assert value is not None
    return value


def as_type(value: object, kind: type[T]) -> T:
    """The value, which is of this type."""
    assert isinstance(value, kind), f"{value!r} is not a {kind.__name__}"
    return value
