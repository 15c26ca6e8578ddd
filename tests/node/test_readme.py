"""The examples of README.md, run as a new user runs them."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark_here import skip_without_spark

README = Path(__file__).resolve().parents[2] / "README.md"
ADDRESS = "127.0.0.1:9092"


def block(language: str, containing: str) -> str:
    """The one fenced block that contains a text."""
    blocks = re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = (text for text in blocks if containing in text)
    return str(found)


def run_python(code: str) -> str:
    """Run code with this interpreter by its path, without activating a virtual environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    environment |= {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        env=environment,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_client_example_works_twice(dev_server: str) -> None:
    code = block("python", "confluent_kafka").replace(ADDRESS, dev_server)
    for _ in range(2):
        assert run_python(code) == "b'hello'\n"


@pytest.mark.slow
def test_console_example_reads_what_it_wrote(dev_server: str) -> None:
    code = block("sh", "pykraft producer").replace(ADDRESS, dev_server).replace("greetings", "console")
    command = f"{shlex.quote(sys.executable)} -m pykraft.node "
    result = subprocess.run(
        ["sh", "-ec", re.sub(r"(?m)(^|\| )pykraft ", rf"\1{command}", code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "hello\n"), result.stderr


@pytest.mark.spark
def test_spark_example_needs_nothing_in_the_environment(dev_server: str) -> None:
    skip_without_spark()
    client = block("python", "confluent_kafka").replace(ADDRESS, dev_server)
    example = block("python", 'format("pykraft")').replace(ADDRESS, dev_server)
    run_python(client.replace("greetings", "shown"))
    shown = run_python(example.replace("greetings", "shown"))
    assert re.search(r"\|\s*shown\|\s*0\|\s*hello\|", shown), shown
