"""kcat: librdkafka from a shell, a common way to try a broker."""

import json
import shutil
import subprocess
from collections.abc import Callable

import pytest

from pykraft.testing import Cluster

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat IS NOT INSTALLED (apt-get install kcat)"),
]

NewTopic = Callable[..., str]
Fresh = Callable[[str], str]


def kcat(cluster: Cluster, *arguments: str, stdin: str = "") -> str:
    result = subprocess.run(
        ["kcat", "-b", cluster.bootstrap_servers, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.shows("kcat", "produce", "{codec}", "assign")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produced_lines_are_consumed_with_keys_and_headers(
    trio: Cluster, new_topic: NewTopic, codec: str
) -> None:
    topic = new_topic()
    lines = [f"k{n}:value {n}" for n in range(200)]
    kcat(trio, "-P", "-t", topic, "-K:", "-H", "source=kcat", "-z", codec, stdin="\n".join(lines))
    got = kcat(trio, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%o %k:%s %h\n")
    assert got.splitlines() == [f"{n} {line} source=kcat" for n, line in enumerate(lines)]


def test_metadata_lists_brokers_topics_and_partitions(trio: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    metadata = json.loads(kcat(trio, "-L", "-J"))
    assert {broker["id"]: broker["name"] for broker in metadata["brokers"]} == trio.broker_addresses
    (found,) = [item for item in metadata["topics"] if item["topic"] == topic]
    assert [len(partition["isrs"]) for partition in found["partitions"]] == [3, 3, 3]


@pytest.mark.shows("kcat", "classic group")
def test_balanced_consumer_reads_everything_once(trio: Cluster, new_topic: NewTopic, fresh: Fresh) -> None:
    topic, group = new_topic(3), fresh("group")
    kcat(trio, "-P", "-t", topic, stdin="\n".join(map(str, range(90))))
    consume = ("-G", group, "-q", "-e", "-X", "auto.offset.reset=earliest", topic)
    assert sorted(map(int, kcat(trio, *consume).split())) == list(range(90))
    assert kcat(trio, *consume) == ""


def test_offset_is_queried_by_time(trio: Cluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    kcat(trio, "-P", "-t", topic, stdin="one\ntwo")
    assert kcat(trio, "-Q", "-t", f"{topic}:0:0").strip() == f"{topic} [0] offset 0"
