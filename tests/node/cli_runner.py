"""Commands of ``pykraft``, run in the process of the test."""

import json
from typing import IO, Any

from click.testing import CliRunner, Result

from pykraft.node.cli.root import cli


def invoke(*words: object, stdin: bytes | IO[bytes] = b"") -> Result:
    """Run a command, whatever its exit status; a traceback fails the test."""
    result = CliRunner().invoke(cli, [str(word) for word in words], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def output(*words: object) -> str:
    """What a command prints that must succeed."""
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def answer(*words: object) -> Any:
    """The same with ``--json``."""
    return json.loads(output(*words, "--json"))


def refusal(*words: object, status: int = 1) -> str:
    """What a command says that must fail."""
    result = invoke(*words)
    assert result.exit_code == status, result.output
    return result.stderr
