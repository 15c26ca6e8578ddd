"""Reading .properties text and typed keys."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pykraft.configuration.keys import (
    ConfigError,
    ConfigKey,
    ConfigType,
    at_least,
    resolve,
    unknown_key_message,
)
from pykraft.configuration.properties import format_properties, parse_properties


def test_comments_separators_continuations_and_escapes_are_read_as_java_reads_them() -> None:
    text = (
        "# comment\n! another\n\nnode.id=1\nlog.dirs : /a,/b\nrack r1\n"
        "long.value=one,\\\n    two\nwith\\=equals=\\u0041\\tb\nempty=\n"
    )
    assert parse_properties(text) == {
        "node.id": "1",
        "log.dirs": "/a,/b",
        "rack": "r1",
        "long.value": "one,two",
        "with=equals": "A\tb",
        "empty": "",
    }


@given(st.dictionaries(st.text(min_size=1), st.text()))
@example({"log.dirs": "C:\\data\n", " key:of=all#": " \t\u2028\x85 value ", "empty": ""})
def test_written_properties_are_read_back(entries: dict[str, str]) -> None:
    assert parse_properties(format_properties(entries)) == entries


def test_characters_that_need_no_escape_are_written_unchanged() -> None:
    written = format_properties({"listeners": "PLAINTEXT://[::1]:9092", "broker.rack": "a b"})
    assert written == "listeners=PLAINTEXT://[::1]:9092\nbroker.rack=a b\n"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.INT, "3000000000"),
        (ConfigType.LONG, "x"),
        (ConfigType.DOUBLE, "half"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_name(kind: ConfigType, text: str) -> None:
    with pytest.raises(ConfigError, match=r"some\.key"):
        ConfigKey("some.key", kind, None, "").parse(text)


def test_given_values_take_precedence_over_defaults_and_are_validated() -> None:
    keys = {
        "a": ConfigKey("a", ConfigType.INT, "1", "", at_least(0)),
        "b": ConfigKey("b", ConfigType.LIST, None, ""),
    }
    assert resolve(keys, {}) == {"a": 1, "b": None}
    assert resolve(keys, {"a": "7", "b": "x, y"}) == {"a": 7, "b": ("x", "y")}
    with pytest.raises(ConfigError, match="at least 0"):
        resolve(keys, {"a": "-1"})


def test_an_unknown_key_is_answered_with_the_nearest_one() -> None:
    known = ["log.retention.ms", "local.retention.ms", "node.id"]
    assert "did you mean log.retention.ms?" in unknown_key_message("log.retension.ms", known, {})


def test_a_name_from_elsewhere_is_answered_with_the_name_here() -> None:
    known = ["retention.ms", "local.retention.ms"]
    elsewhere = {"log.retention.ms": "retention.ms"}
    assert unknown_key_message("log.retention.ms", known, elsewhere).endswith("; did you mean retention.ms?")
