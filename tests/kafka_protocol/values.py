"""Seeded values for any message at any version."""

import random
from typing import ClassVar, Protocol, TypeVar, cast

from pykraft.kafka_protocol.codec.field_types import FieldSpec


class Table(Protocol):
    """A message, or a struct nested in one: its class has a table of fields."""

    FIELDS: ClassVar[tuple[FieldSpec, ...]]


T = TypeVar("T", bound=Table)
INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def nested_table(spec: FieldSpec) -> type[Table]:
    """The class of the struct, or of the array's structs, that is the value of this field."""
    assert isinstance(spec.element, type)
    return cast(type[Table], spec.element)


class Generator:
    """Values for any message at any version, drawn from our own tables; the same for the same seed.

    Only the fields of the version are set, so that a round trip returns an equal message.
    """

    def __init__(self, seed: str, *, max_items: int = 3) -> None:
        self._rng = random.Random(seed)
        self._max_items = max_items

    def message(self, table: type[T], version: int) -> T:
        """A message or struct with random values."""
        return table(
            **{
                spec.name: self._value(spec, version)
                for spec in table.FIELDS
                if version in spec.versions and not (spec.tag is not None and self._rng.random() < 0.3)
            }
        )

    def _value(self, spec: FieldSpec, version: int) -> object:
        if version in spec.nullable and self._rng.random() < 0.2:
            return None
        if spec.kind == "struct":
            return self.message(nested_table(spec), version)
        if spec.kind != "array":
            return self._scalar(spec.kind, spec.name)
        count = self._rng.randint(0, self._max_items)
        if isinstance(spec.element, str):
            count = 130 if self._rng.random() < 0.02 else count
            scalars = [self._scalar(spec.element, spec.name) for _ in range(count)]
            return scalars if spec.distinct is None else list(dict.fromkeys(scalars))
        elements = [self.message(nested_table(spec), version) for _ in range(count)]
        if not spec.distinct:
            return elements
        names = spec.distinct
        return list({tuple(getattr(it, name) for name in names): it for it in elements}.values())

    def _scalar(self, kind: str, name: str) -> object:
        rng = self._rng
        if name.endswith("error_code"):
            return rng.randint(-1, 133)
        match kind:
            case "bool":
                return rng.random() < 0.5
            case "uuid":
                return bytes(16) if rng.random() < 0.2 else rng.randbytes(16)
            case "string":
                size = 200 if rng.random() < 0.05 else rng.randint(0, 12)
                return "".join(rng.choice("ab-._ 9\u00e9\u2603\U0001f600") for _ in range(size))
            case "bytes" | "records":
                return rng.randbytes(300 if rng.random() < 0.1 else rng.randint(0, 12))
            case "int64" if name == "transaction_start_time_ms":
                return rng.choice([0, rng.randrange(1 << 41)])  # kio cannot read -1: no transaction
            case "int64" if name.endswith("_ms"):
                return rng.choice([-1, 0, rng.randrange(1 << 41)])
            case "uint16":
                return rng.choice([0, 65535, rng.randrange(1 << 16)])
            case _:
                limit = 1 << (INTEGER_BITS[kind] - 1)
                return rng.choice([0, -1, 1, limit - 1, -limit, rng.randrange(-limit, limit)])
