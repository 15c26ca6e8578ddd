"""A Spark session on this machine alone, for jobs, demos and tests: small, quick to start, no network needed.

Not for production: there the session comes from ``spark-submit``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A short-lived virtual machine on few cores: its best compiler and parallel collectors would not pay off.
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
_OLDEST_JAVA = 17
_DISCOVERY_MODULE = "pyspark_pykraft"

_PROBE: Mapping[str, str] = {"kafka.bootstrap.servers": "localhost:9", "assign": '{"nothing":[0]}'}
"""Options with which a frame can be made: nothing is connected before it is read."""

_ADVICE = (
    "Spark's Python cannot import the package pykraft: before Spark starts, set PYSPARK_PYTHON (or"
    " spark.pyspark.python) to an interpreter that has it, on every machine; with spark-submit,"
    " --archives ENVIRONMENT.tar.gz#environment and PYSPARK_PYTHON=environment/bin/python bring one along"
)


def local_session(app_name: str, master: str = "local[2]", **settings: str) -> SparkSession:
    """Start (or join) a session. ``settings``: further Spark settings, with ``__`` for each dot."""
    problem = java_problem()
    if problem is not None:
        raise RuntimeError(problem)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    prepare_environment()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(app_name)
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        # By TCP the last bytes of every task wait some 40 ms for an acknowledgement (Spark 4.1 and newer).
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in {**defaults, **{k.replace("__", "."): v for k, v in settings.items()}}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def prepare_environment() -> None:
    """Let Spark run its Python with this interpreter, and find the data source there.

    Must run before the Java virtual machine starts, which passes its environment on. An existing
    PYSPARK_PYTHON is kept.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    make_discoverable()


def register(session: SparkSession) -> None:
    """Let a session that exists already read and write ``format("pykraft")``.

    For sessions that were started before Spark could be told where the source is
    (:func:`prepare_environment`), and for Spark Connect. On this machine, Spark's Python becomes this
    interpreter unless PYSPARK_PYTHON or ``spark.pyspark.python`` chose another; on a cluster each machine
    needs a Python with the package. :class:`RuntimeError`, which says what to set, if Spark's Python does not
    have it.
    """
    from pyspark.errors import PySparkException

    from pykraft.spark.source import PykraftDataSource

    context = getattr(session, "_sc", None)  # a Connect session has none
    if context is not None and context.master.startswith("local"):
        chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
        if not chosen:
            context.pythonExec = sys.executable
    try:
        session.dataSource.register(PykraftDataSource)
        _ = session.read.format("pykraft").options(**_PROBE).load().schema  # imports the source there
    except PySparkException as error:
        missing = re.search(r"ModuleNotFoundError: (.*)", str(error))
        if missing is None:
            raise
        raise RuntimeError(f"{_ADVICE} ({missing[1]})") from error


def java_problem() -> str | None:
    """Why Spark cannot start a Java virtual machine here, with what to do about it; None if it can."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    advice = f"install Java {_OLDEST_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless)"
    if java is None or not os.access(java, os.X_OK):
        return f"Spark needs Java, and none was found: {advice}"
    version_text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', version_text)
    if version is not None and int(version.group(1)) < _OLDEST_JAVA:
        return f"Spark needs Java {_OLDEST_JAVA} or newer, found {version.group(1)}: {advice}"
    return None


def make_discoverable() -> None:
    """Let Spark find the data source in an editable install, too.

    Spark looks for modules by listing directories, which does not show those that an editable install maps by
    an import hook.
    """
    if any(module.name == _DISCOVERY_MODULE for module in iter_modules()):
        return
    spec = find_spec(_DISCOVERY_MODULE)
    if spec is None or spec.origin is None:
        raise RuntimeError(
            f"module {_DISCOVERY_MODULE} is not installed; install pykraft with its extra 'spark'"
        )
    paths = [str(Path(spec.origin).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
