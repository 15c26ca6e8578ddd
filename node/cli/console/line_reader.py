"""Lines of text as records: headers, a key and a value with separators between, as kafka-console-producer reads them.

Bytes that are no text are kept as they are, except in the names of headers. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Final

import click

from pykraft.node.cli.shared.property_options import ToolProperties

PROPERTIES: Final = (
    "parse.key",
    "parse.headers",
    "key.separator",
    "headers.delimiter",
    "headers.separator",
    "headers.key.separator",
    "null.marker",
    "ignore.error",
)

Headers = tuple[tuple[str, bytes | None], ...]


class RefusedLineError(Exception):
    """A line that cannot become a record, or not be sent; the message says which, and why."""


@dataclass(frozen=True, slots=True)
class LineRecord:
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class LineReader:
    """:class:`click.UsageError` for separators that could not be told apart."""

    def __init__(self, reading: ToolProperties) -> None:
        self._parse_key = reading.flag("parse.key")
        self._parse_headers = reading.flag("parse.headers")
        self._ignore_error = reading.flag("ignore.error")
        self._key_separator = reading.delimiter("key.separator", "\t")
        self._headers_delimiter = reading.delimiter("headers.delimiter", "\t")
        self._headers_separator = reading.delimiter("headers.separator", ",")
        self._header_key_separator = reading.delimiter("headers.key.separator", ":")
        marker = reading.text("null.marker")
        self._null_marker = None if marker is None else marker.encode()
        self._check_separators()

    def record(self, number: int, line: bytes) -> LineRecord:
        """The record in line ``number``, counted from 1. :class:`RefusedLineError`."""
        rest = line.removesuffix(b"\n").removesuffix(b"\r")
        headers = key = None
        if self._parse_headers:
            headers, rest = self._split(rest, self._headers_delimiter, "headers delimiter", number)
        if self._parse_key:
            key, rest = self._split(rest, self._key_separator, "key separator", number)
        return LineRecord(
            self._unless_null(key), self._unless_null(rest), self._headers(self._unless_null(headers), number)
        )

    def _split(self, text: bytes, separator: bytes, what: str, number: int) -> tuple[bytes | None, bytes]:
        """Split at the separator: what is before it, and the rest."""
        before, found, after = text.partition(separator)
        if found:
            return before, after
        if self._ignore_error:
            return None, text
        raise RefusedLineError(f"no {what} in line {number}")

    def _headers(self, text: bytes | None, number: int) -> Headers:
        if text is None:
            return ()
        parts = text.split(self._headers_separator)
        while len(parts) > 1 and not parts[-1]:  # as Java splits
            del parts[-1]
        return tuple(self._header(part, number) for part in parts)

    def _header(self, part: bytes, number: int) -> tuple[str, bytes | None]:
        name, found, value = part.partition(self._header_key_separator)
        if name == self._null_marker:
            raise RefusedLineError(f"a header without a name (the null marker) in line {number}")
        try:
            text = name.decode()
        except UnicodeDecodeError:
            raise RefusedLineError(f"the name of a header is not UTF-8 in line {number}") from None
        if not found and not self._ignore_error:
            raise RefusedLineError(f"no header key separator in header {text!r} of line {number}")
        return text, self._unless_null(value) if found else None

    def _unless_null(self, part: bytes | None) -> bytes | None:
        return None if part == self._null_marker else part

    def _check_separators(self) -> None:
        of_headers = {
            "headers.delimiter": self._headers_delimiter,
            "headers.separator": self._headers_separator,
            "headers.key.separator": self._header_key_separator,
        }
        pairs = list(combinations(of_headers.items(), 2))
        if self._null_marker is not None:
            marker = ("null.marker", self._null_marker)
            pairs += [
                (marker, other) for other in (("key.separator", self._key_separator), *of_headers.items())
            ]
        for (name, separator), (other_name, other) in pairs:
            if separator == other:
                raise click.UsageError(f"{name} and {other_name} may not be equal")
