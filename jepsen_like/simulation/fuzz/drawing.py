"""Requests of any API and version, drawn from the message tables.

Every array of every request is empty at times, has its elements twice, is at the bound of its API or beyond
it; every number is at its extremes; strings are empty, null and as long as the protocol allows; tagged fields
are unknown; bytes are damaged. What is drawn depends on the seed alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from pykraft.broker.serving.api import Api
from pykraft.jepsen_like.simulation.fuzz.spoiling import damaged, with_unknown_tags
from pykraft.jepsen_like.simulation.fuzz.values import Values
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.codec.field_types import FieldSpec
from pykraft.kafka_protocol.codec.schema import EncodedElements, Message
from pykraft.kafka_protocol.headers import encode_request

Path = tuple[str, ...]
"""An array of a request: the names of the fields that lead to it."""

SMALL: Final = "small"
DAMAGED: Final = "damaged"
SHAPES: Final[Mapping[str, float]] = {
    SMALL: 0.696,
    "extremes": 0.08,
    "sized": 0.11,
    "at the bound": 0.005,
    "beyond the bound": 0.005,
    "long": 0.04,
    "tagged": 0.02,
    DAMAGED: 0.044,
}
"""The kinds of requests, with their share. Those at the bound take a hundred times as long as others."""
_NOWHERE: Final[Path] = ("",)
"""No array: all are empty."""
_SIZES: Final = (0, 2, 2, 3, 30, 200, 1_000, 3_000)
_MOST_BYTES: Final = 8 << 20
_UNREGISTER: Final = ApiKey.UNREGISTER_BROKER.to_bytes(2, "big")


@dataclass(frozen=True)
class Drawn:
    """One request as bytes, and what it is, for people."""

    api: Api[Any, Any, Any]
    version: int
    frame: bytes
    what: str


def array_paths(table: Any, version: int) -> Iterator[Path]:
    """Every array of a message at a version."""
    for spec in table.FIELDS:
        if version in spec.versions and spec.kind in ("array", "struct") and isinstance(spec.element, type):
            if spec.kind == "array":
                yield (spec.name,)
            yield from ((spec.name, *rest) for rest in array_paths(spec.element, version))
        elif version in spec.versions and spec.kind == "array":
            yield (spec.name,)


class Drawing:
    """Draws requests of some ``apis``."""

    def __init__(self, rng: Random, apis: Sequence[Api[Any, Any, Any]], values: Values) -> None:
        self._rng = rng
        self._apis = apis
        self._values = values
        self._message: type[Message] = Message

    def draw(self, correlation_id: int) -> Drawn:
        rng = self._rng
        shape = rng.choices(tuple(SHAPES), tuple(SHAPES.values()))[0]
        api = rng.choice(self._apis)
        version = rng.randint(api.min_version, api.max_version)
        paths = list(array_paths(api.request, version))
        if shape in ("at the bound", "beyond the bound", "sized"):
            if paths:
                path = rng.choice(paths)
                return self.sized(api, version, path, shape, correlation_id, same=rng.random() < 0.4)
            shape = SMALL
        self._message, values = api.request, self._values
        values.extreme, values.long = shape == "extremes", shape == "long"
        try:
            request = self._table(api.request, version, (), 0, same=False)
            frame = encode_request(request, version, correlation_id, rng.choice((None, "", "client")))
        finally:
            values.extreme = values.long = False
        if shape == "tagged":
            frame = with_unknown_tags(rng, api, version, frame)
        elif shape == DAMAGED:
            spoiled = damaged(rng, frame)
            if spoiled[:2] != _UNREGISTER:  # of the node itself, that would be carried out
                frame = spoiled
        return Drawn(api, version, frame, shape)

    def sized(
        self,
        api: Api[Any, Any, Any],
        version: int,
        path: Path,
        shape: str,
        correlation_id: int,
        *,
        same: bool,
        size: int | None = None,
    ) -> Drawn:
        """A request with so many elements in one array; ``same``: all of them are equal."""
        if size is None:
            size = self._rng.choice(_SIZES)
        if shape != "sized":
            # Those before it have one element each, and its own elements have none.
            size = api.max_items - (len(path) - 1) + (shape == "beyond the bound")
        self._message = api.request
        request = self._table(api.request, version, path, size, same=same)
        frame = encode_request(request, version, correlation_id, "client")
        kind = "equal" if same else "different"
        return Drawn(api, version, frame[:_MOST_BYTES], f"{shape}: {'.'.join(path)}, {size} {kind} elements")

    def _table(self, table: Any, version: int, path: Path, size: int, *, same: bool) -> Any:
        """A message or struct. With a ``path`` its array has ``size`` elements, and others are empty."""
        made = {}
        for spec in table.FIELDS:
            if version not in spec.versions or (spec.tag is not None and self._rng.random() < 0.5):
                continue
            if spec.kind == "array":
                made[spec.name] = self._array(table, spec, version, path, size, same=same)
            elif spec.kind == "struct":
                if version not in spec.nullable or self._rng.random() < 0.5:
                    inner = path[1:] if path and path[0] == spec.name else ()
                    made[spec.name] = self._table(spec.element, version, inner, size, same=same)
            else:
                made[spec.name] = self._values.draw(spec, spec.kind, table.__name__, version)
        return table(**made)

    def _array(
        self, table: Any, spec: FieldSpec, version: int, path: Path, size: int, *, same: bool
    ) -> list[Any] | None:
        is_on_path = bool(path) and path[0] == spec.name
        if not path:
            if version in spec.nullable and self._rng.random() < 0.15:
                return None
            count = self._rng.choice((0, 1, 1, 1, 2, 3))
            return [self._element(table, spec, version, (), 0, same=same) for _ in range(count)]
        if not is_on_path:
            return []
        if len(path) > 1:
            return [self._element(table, spec, version, path[1:], size, same=same)]
        if not size:
            return []
        if same:
            return self._repeated(self._element(table, spec, version, _NOWHERE, 0, same=True), version, size)
        return self._different(table, spec, version, size)

    def _element(
        self, table: Any, spec: FieldSpec, version: int, path: Path, size: int, *, same: bool
    ) -> Any:
        if isinstance(spec.element, str):
            return self._values.draw(spec, spec.element, table.__name__, version)
        return self._table(spec.element, version, path, size, same=same)

    def _repeated(self, element: Any, version: int, size: int) -> list[Any]:
        if not hasattr(element, "FIELDS"):
            return [element] * size
        return EncodedElements([self._encode(element, version)] * size)

    def _different(self, table: Any, spec: FieldSpec, version: int, size: int) -> list[Any]:
        """Elements that differ in one field: what exists comes first."""
        if isinstance(spec.element, str):
            return [
                self._values.numbered(spec, spec.element, table.__name__, number) for number in range(size)
            ]
        element = self._table(spec.element, version, _NOWHERE, 0, same=False)
        fields = [one for one in type(element).FIELDS if version in one.versions]
        kinds = ("string", "uuid", "int32", "int64", "int16", "int8")
        varied = min(
            (one for one in fields if one.kind in kinds), key=lambda one: kinds.index(one.kind), default=None
        )
        encoded = EncodedElements()
        for number in range(size):
            if varied is not None:
                value = self._values.numbered(varied, varied.kind, type(element).__name__, number)
                setattr(element, varied.name, value)
            encoded.append(self._encode(element, version))
        return encoded

    def _encode(self, element: Any, version: int) -> bytes:
        return self._message.encode_part(element, version)
