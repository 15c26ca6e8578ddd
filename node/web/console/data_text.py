"""Keys, values and headers as text: whatever bytes they are, what is shown is harmless and says what it is.

Characters that would be acted on instead of shown (control characters, those that turn the direction of
writing, halves of surrogate pairs) are shown by their codes. JSON is laid out again token by token, so that
numbers and double keys stay as they were written.

Data are cut before anything is done with them: a single call of the interpreter keeps the node's own loop
waiting until it returns, in whatever thread it is made.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Final

from pykraft.lazy_dataclass import dataclass

REGISTRY_MAGIC: Final = 0
_REGISTRY_HEAD_BYTES: Final = 5
_MOST_SCHEMA_ID: Final = 1 << 24
"""Registries count their schemas from 1."""
MOST_JSON_BYTES: Final = 64 << 10
"""Longer data is not parsed as JSON: that takes one long call."""
_HEX_COLUMNS: Final = 16
_INDENT: Final = "  "
_MOST_NESTING: Final = 64
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_ACTED_ON: Final = {
    code: f"\\u{code:04x}"
    for code in (
        *(code for code in range(32) if chr(code) not in "\t\n"),
        *range(127, 160),
        *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        *range(0xD800, 0xE000),
    )
}


class Format(Enum):
    """How bytes are shown. AUTO: as JSON or text if they are that, else as hex."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"


@dataclass(frozen=True, slots=True)
class DataText:
    """``kind`` null, empty, text, json or hex; ``note`` says what else there is to know, or is empty.

    ``is_cut``: ``text`` does not show all of the ``size_bytes`` bytes.
    """

    kind: str
    text: str
    size_bytes: int
    is_cut: bool = False
    note: str = ""

    @property
    def line(self) -> str:
        """The beginning, in one line."""
        return " ".join(self.text[:400].split())


def show(data: bytes | None, wanted: Format, most: int) -> DataText:
    """At most about ``most`` characters, or of hex as many as that is bytes divided by four."""
    if data is None:
        return DataText("null", "", 0)
    if not data:
        return DataText("empty", "", 0)
    match wanted:
        case Format.TEXT:
            return _as_text(data, most)
        case Format.JSON:
            return _as_json(data, most) or _as_text(data, most, _why_no_json(data))
        case Format.HEX:
            return _as_hex(data, most)
    if not _is_text(data[:most], is_cut=len(data) > most):
        return _as_hex(data, most)
    return (_as_json(data, most) if data.lstrip()[:1] in (b"{", b"[") else None) or _as_text(data, most)


def visible(text: str) -> str:
    """Without characters that are acted on, except tabs and ends of lines."""
    return text.replace("\r\n", "\n").translate(_ACTED_ON)


def _as_text(data: bytes, most: int, note: str = "") -> DataText:
    # A character of UTF-8 has at most four bytes.
    text = data[: 4 * most].decode("utf-8", "replace")
    shown = visible(text[:most])
    is_cut = len(data) > 4 * most or len(text) > most or len(shown) > most
    return DataText("text", shown[:most], len(data), is_cut, note or registry_note(data))


def _as_json(data: bytes, most: int) -> DataText | None:
    """None if it is not JSON, or too much of it."""
    if len(data) > MOST_JSON_BYTES:
        return None
    try:
        text = data.decode("utf-8")
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    laid_out = visible(_lay_out(text, most))
    return DataText("json", laid_out[:most], len(data), len(laid_out) > most)


def _why_no_json(data: bytes) -> str:
    if len(data) > MOST_JSON_BYTES:
        return f"More than {MOST_JSON_BYTES:,} bytes are not laid out as JSON."
    return "This is not JSON."


def _lay_out(text: str, most: int) -> str:
    """Valid JSON on several lines; of a long one the beginning, with more than ``most`` characters."""
    out: list[str] = []
    depth = length = 0
    before = ""
    for found in _TOKEN.finditer(text):
        token = found[0]
        piece = ": " if token == ":" else token
        if token in "}]":
            depth -= 1
            if before not in "{[":
                piece = _line(depth) + piece
        elif before in "{[":
            piece = (_line(depth) if before else "") + piece
        elif before == ",":
            piece = _line(depth) + piece
        if token in "{[":
            depth += 1
        out.append(piece)
        length += len(piece)
        if length > most:
            break
        before = token
    return "".join(out)


def _line(depth: int) -> str:
    return "\n" + _INDENT * min(depth, _MOST_NESTING)


def _as_hex(data: bytes, most: int) -> DataText:
    shown = data[: max(_HEX_COLUMNS, most // 4)]
    columns = min(_HEX_COLUMNS, len(shown))
    lines = []
    for start in range(0, len(shown), _HEX_COLUMNS):
        row = shown[start : start + _HEX_COLUMNS]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:06x}  {row.hex(' '):<{3 * columns - 1}}  {letters}")
    return DataText(
        "hex", "\n".join(lines), len(data), len(shown) < len(data), registry_note(data) or _number(data)
    )


def registry_note(data: bytes) -> str:
    """Explain bytes that a serializer with a schema registry may have written."""
    if len(data) <= _REGISTRY_HEAD_BYTES or data[0] != REGISTRY_MAGIC or len(data) == 8:
        return ""
    schema_id = int.from_bytes(data[1:_REGISTRY_HEAD_BYTES], "big")
    if not 0 < schema_id < _MOST_SCHEMA_ID:
        return ""
    return (
        f"This begins as data of a schema registry do (magic byte 0), with schema {schema_id}: Avro, Protobuf"
        " or JSON Schema. The console has no registry to decode it with; a consumer with that deserializer"
        " has."
    )


def _number(data: bytes) -> str:
    """Show as a number what may be a small integer of Kafka's own serializers."""
    if len(data) not in (4, 8) or data[0] not in (0, 255):
        return ""
    return f"As a big-endian integer: {int.from_bytes(data, 'big', signed=True):,}."


def _is_text(data: bytes, *, is_cut: bool) -> bool:
    """Whether it is UTF-8 without control characters; of the last character some bytes may be cut off."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if not is_cut or error.end != len(data) or error.reason != "unexpected end of data":
            return False
        text = data[: error.start].decode("utf-8")
    return not any((ord(letter) < 32 and letter not in "\t\n\r") or letter == "\x7f" for letter in text)
