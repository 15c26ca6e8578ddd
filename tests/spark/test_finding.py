"""Spark finds the source in the ways of starting it that docs/spark.md names.

Each is a Spark of its own, in a process of its own, with nothing of this virtual environment but what that
way is told: no activated environment, no PYTHONPATH, another working directory. A *bare* Python is one that
has all other packages of the extra ``spark``, and not pykraft.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
import zipfile
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.testing.processes.maven import cache_directory
from tests.spark_here import skip_without_spark

ROOT: Final = Path(__file__).resolve().parents[2]
PINS: Final = ROOT / "constraints.txt"
RECORDS: Final = 100
PATIENCE_S: Final = 600
CONNECT_PACKAGES: Final = (
    "googleapis-common-protos",
    "pandas",
    "python-dateutil",
    "six",
    "tzdata",
    "zstandard",
)

START: Final = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.config("spark.ui.enabled", "false")
session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
"""
REGISTER: Final = """
from pykraft.spark.session import register
register(session)
"""
COUNT: Final = """
frame = session.read.format("pykraft").option("kafka.bootstrap.servers", sys.argv[1])
print("rows:", frame.option("subscribe", sys.argv[2]).load().count())
session.stop()
"""

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(autouse=True, scope="module")
def _spark_can_run() -> None:
    skip_without_spark()


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sees the packages of this environment, but not those that it has by a link to a clone."""
    directory = tmp_path_factory.mktemp("bare")
    venv.create(directory, symlinks=True)
    own = sysconfig.get_paths(vars={"base": str(directory), "platbase": str(directory)})["purelib"]
    Path(own, "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    python = directory / "bin" / "python"
    found = run([python, "-c", "import pyspark, pyarrow, pykraft"])
    if "No module named 'pykraft'" not in found.stderr:
        pytest.skip("NOT TESTED: pykraft is not installed from a clone, so every Python here has it")
    return python


@pytest.fixture
def filled_topic(servers: str, topic: str) -> str:
    with BlockingProducer(ClientConfig(parse_bootstrap_servers(servers))) as producer:
        for number in range(RECORDS):
            producer.send(topic, None, None, b"%d" % number)
    return topic


def run(command: list[str | Path], **settings: str) -> subprocess.CompletedProcess[str]:
    """With an environment that names no Python."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "PYTHON", "VIRTUAL_ENV", "SPARK"))
    }
    java = Path(shutil.which("java") or "java").parent
    environment = kept | {"PATH": f"{java}:/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1"} | settings
    return subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_session_of_a_python_that_was_called_by_its_path_is_told_afterwards(
    servers: str, filled_topic: str
) -> None:
    done = run([sys.executable, "-c", START + REGISTER + COUNT, servers, filled_topic])
    assert f"rows: {RECORDS}" in done.stdout, done.stderr


def test_package_comes_along_with_spark_submit(
    servers: str, filled_topic: str, bare_python: Path, tmp_path: Path
) -> None:
    job, package = tmp_path / "job.py", tmp_path / "pykraft.zip"
    job.write_text(START + REGISTER + COUNT, encoding="utf-8")
    with (ROOT / "pyproject.toml").open("rb") as file:
        packages = tomllib.load(file)["tool"]["setuptools"]["packages"]
    with zipfile.ZipFile(package, "w") as archive:
        for name in packages:
            folder = ROOT.joinpath(*name.split(".")[1:])
            for path in folder.glob("*.py"):
                archive.write(path, f"{name.replace('.', '/')}/{path.name}")
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    submit = Path(spark.origin).parent / "bin" / "spark-submit"
    done = run(
        [submit, "--py-files", package, job, servers, filled_topic],
        PYSPARK_PYTHON=str(bare_python),
        SPARK_HOME=str(submit.parents[1]),
    )
    assert f"rows: {RECORDS}" in done.stdout, done.stderr


def test_python_without_the_package_is_told_what_to_set(bare_python: Path) -> None:
    done = run([sys.executable, "-c", START + REGISTER], PYSPARK_PYTHON=str(bare_python))
    assert done.returncode == 1
    error = done.stderr.strip().splitlines()[-1]
    assert error.startswith("RuntimeError: Spark's Python cannot import the package pykraft"), done.stderr
    assert "set PYSPARK_PYTHON" in error
    assert "No module named 'pykraft'" in error


@pytest.fixture(scope="module")
def connect_packages() -> Path:
    """What Spark Connect needs and pykraft does not, installed once in the user's cache directory."""
    grpc_version = version("grpcio")
    pins = sha256(PINS.read_bytes()).hexdigest()[:16]
    directory = cache_directory() / f"spark-connect-{pins}-{sys.implementation.cache_tag}"
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as target:
            packages = [*CONNECT_PACKAGES, f"grpcio-status=={grpc_version}"]
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--constraint", str(PINS)]
            done = subprocess.run(
                [*pip, "--target", f"{target}/packages", *packages],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                pytest.skip(
                    f"NOT TESTED: packages for Spark Connect cannot be installed: {done.stderr[-300:]}"
                )
            Path(target, "packages").rename(directory)
    return directory


def test_source_is_registered_with_spark_connect(
    servers: str, filled_topic: str, connect_packages: Path
) -> None:
    start = START.replace("SparkSession.builder", 'SparkSession.builder.remote("local[2]")')
    done = run(
        [sys.executable, "-c", start + REGISTER + COUNT, servers, filled_topic],
        PYTHONPATH=str(connect_packages),
        PYSPARK_PYTHON=sys.executable,
    )
    assert f"rows: {RECORDS}" in done.stdout, done.stderr
