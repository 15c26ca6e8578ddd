"""Lines as records, and properties of Java as settings of librdkafka, without a cluster."""

from collections.abc import Mapping

import click
import pytest

from pykraft.configuration.keys import ConfigError
from pykraft.node.cli.console.librdkafka_properties import translated
from pykraft.node.cli.console.line_reader import PROPERTIES, LineReader, LineRecord, RefusedLineError
from pykraft.node.cli.shared.property_options import GivenProperties, ToolProperties

OPTION = "--reader-property"


def reader(**given: str) -> LineReader:
    values = {name.replace("_", "."): value for name, value in given.items()}
    return LineReader(ToolProperties(GivenProperties(values, OPTION), PROPERTIES))


# --- lines to records --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "line", "record"),
    [
        ({}, b"a\tb\xff\r\n", LineRecord(None, b"a\tb\xff")),
        ({}, b"last line", LineRecord(None, b"last line")),
        ({"parse_key": "true"}, b"k\tv\tw\n", LineRecord(b"k", b"v\tw")),
        ({"parse_key": " TRUE ", "key_separator": "->"}, b"k->\n", LineRecord(b"k", b"")),
        (
            {"parse_key": "true", "parse_headers": "true", "null_marker": "NULL"},
            b"h1:v1,h2:NULL,h3:a:b,\tNULL\tNULL\n",
            LineRecord(None, None, (("h1", b"v1"), ("h2", None), ("h3", b"a:b"))),
        ),
        ({"parse_headers": "true", "null_marker": "-"}, b"-\tv\n", LineRecord(None, b"v")),
        (
            {"parse_headers": "true", "ignore_error": "true"},
            b"a,b:c\tv",
            LineRecord(None, b"v", (("a", None), ("b", b"c"))),
        ),
        ({"parse_key": "true", "ignore_error": "true"}, b"no key", LineRecord(None, b"no key")),
        (
            {
                "parse_headers": "true",
                "headers_delimiter": "|",
                "headers_separator": ";",
                "headers_key_separator": "=",
            },
            b"a=1;b=2|v",
            LineRecord(None, b"v", (("a", b"1"), ("b", b"2"))),
        ),
    ],
)  # fmt: skip
def test_line_becomes_a_record(given: Mapping[str, str], line: bytes, record: LineRecord) -> None:
    assert reader(**given).record(1, line) == record


@pytest.mark.parametrize(
    ("given", "line", "said"),
    [
        ({"parse_key": "true"}, b"v", "no key separator in line 3"),
        ({"parse_headers": "true"}, b"v", "no headers delimiter in line 3"),
        ({"parse_headers": "true"}, b"h\tv", "no header key separator in header 'h' of line 3"),
        ({"parse_headers": "true"}, b"\xff:1\tv", "name of a header is not UTF-8 in line 3"),
        ({"parse_headers": "true", "null_marker": "N"}, b"N:1\tv", "a header without a name"),
    ],
)
def test_line_that_is_no_record_is_refused(given: Mapping[str, str], line: bytes, said: str) -> None:
    with pytest.raises(RefusedLineError, match=said):
        reader(**given).record(3, line)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"parse_kye": "true"}, "--reader-property parse.kye: unknown; did you mean parse.key?"),
        ({"parse_key": "yes"}, "--reader-property parse.key: 'yes' is neither true nor false"),
        ({"key_separator": ""}, "--reader-property key.separator is empty"),
        ({"headers_separator": ":"}, "headers.separator and headers.key.separator may not be equal"),
        ({"null_marker": ","}, "null.marker and headers.separator may not be equal"),
    ],
)
def test_properties_that_make_no_sense_are_refused(given: Mapping[str, str], said: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        reader(**given)
    assert refused.value.message == said


# --- properties of clients ---------------------------------------------------------------------------------


def test_properties_of_java_become_those_of_librdkafka() -> None:
    given = {
        "acks": " all",
        "buffer.memory": "1025",
        "auto.offset.reset": "none",
        "group.protocol": "CONSUMER",
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor,cooperative-sticky",
        "send.buffer.bytes": "-1",
        "key.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
        "metric.reporters": "x",
        "no.such": "1",
    }
    settings, without_effect = translated(given)
    assert settings == {
        "acks": "all",
        "queue.buffering.max.kbytes": "2",
        "auto.offset.reset": "error",
        "group.protocol": "consumer",
        "partition.assignment.strategy": "range,cooperative-sticky",
        "socket.send.buffer.bytes": "0",
        "no.such": "1",
    }
    assert without_effect == ("metric.reporters",)
    for name, value in (("buffer.memory", "much"), ("partition.assignment.strategy", "a.StickyAssignor")):
        with pytest.raises(ConfigError, match=name):
            translated({name: value})
