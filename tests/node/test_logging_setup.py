"""The log of a server as JSON: one parsable object a line, whatever is logged."""

import json
import logging
import sys

import pytest

from pykraft.configuration.keys import ConfigError
from pykraft.node.cli.shared.logging_setup import JsonFormatter, set_up_logging


def record(message: str, *args: object, error: bool = False) -> logging.LogRecord:
    info = None
    if error:
        try:
            raise OSError(28, "no space")
        except OSError:
            info = sys.exc_info()
    made = logging.LogRecord("pykraft.node", logging.WARNING, __file__, 1, message, args, info)
    made.created = 1_790_000_000.25
    return made


def test_event_is_one_line_with_its_fields() -> None:
    line = JsonFormatter("node-1").format(record('two\nlines, "quotes" and %s', "ü"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-09-21T14:13:20.250+00:00",
        "level": "WARNING",
        "node": "node-1",
        "logger": "pykraft.node",
        "message": 'two\nlines, "quotes" and ü',
    }


def test_exception_is_in_its_event() -> None:
    line = JsonFormatter().format(record("failed", error=True))
    event = json.loads(line)
    assert "node" not in event
    assert event["exception"].endswith("OSError: [Errno 28] no space") and "\n" not in line


def test_unknown_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKRAFT_LOG_FORMAT", "xml")
    with pytest.raises(ConfigError, match="PYKRAFT_LOG_FORMAT: xml is not a format; these are text, json"):
        set_up_logging()
