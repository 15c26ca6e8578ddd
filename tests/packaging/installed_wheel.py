"""Run by the Python of an environment with nothing but the wheel: ``make wheel``.

The installed package is compiled, says so, and serves; asked to, it runs interpreted and does the same.
"""

import os
import subprocess
import sys
from pathlib import Path

SERVES = """
import gc
import weakref
from pathlib import Path
import pykraft.compiled
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.testing import Cluster

assert Path(pykraft.compiled.__file__).resolve().parent != Path({clone!r}), "this is the clone"
with Cluster(3, processes=True) as cluster:
    cluster.create_topic("orders", 2)
    values = [b"%d" % number * 100 for number in range(500)]
    cluster.produce("orders", *values, partition=1)
    assert [record.value for record in cluster.read("orders", 500)] == values
error = KafkaError(ErrorCode.NONE, "it goes")
reference = weakref.ref(error)
gc.collect()
assert reference() is error
del error
assert reference() is None
print(pykraft.compiled.form())
"""


def main() -> None:
    clone = Path(__file__).resolve().parent.parent.parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for asked, form in (("", "compiled"), ("1", "interpreted")):
        environment["PYKRAFT_INTERPRETED"] = asked
        for command in (["-m", "pykraft", "--version"], ["-c", SERVES.format(clone=str(clone))]):
            done = subprocess.run(
                [sys.executable, *command], env=environment, cwd="/", capture_output=True, text=True
            )
            if done.returncode != 0 or form not in done.stdout:
                sys.exit(f"not {form}: {command} ended with {done.returncode}\n{done.stdout}{done.stderr}")
            print(f"{form}: {done.stdout.strip()}")


if __name__ == "__main__":
    main()
