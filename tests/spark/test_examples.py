"""The examples print what their docstrings say."""

import textwrap
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
import spark_batch
import spark_deduplicate
import spark_sink
import spark_word_count

from pykraft.kafka_client.admin.client import AdminClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.spark]

EXAMPLES = (spark_batch, spark_deduplicate, spark_sink, spark_word_count)


def promised_output(example: ModuleType) -> str:
    """The indented lines after the words "prints:"."""
    _, _, rest = (example.__doc__ or "").partition("prints:\n\n")
    lines = rest.splitlines()
    end = next(
        (number for number, line in enumerate(lines) if line and not line.startswith("    ")), len(lines)
    )
    return textwrap.dedent("\n".join(lines[:end])).strip()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_output_is_the_promised_one_and_nothing_is_left(
    spark_session: "SparkSession", servers: str, capsys: pytest.CaptureFixture[str], example: ModuleType
) -> None:
    with AdminClient(servers) as admin:
        before = {topic.name for topic in admin.list_topics() if not topic.is_internal}
        example.main(spark_session, servers)
        after = {topic.name for topic in admin.list_topics() if not topic.is_internal}
    assert capsys.readouterr().out.strip() == promised_output(example)
    assert after <= before
    assert not spark_session.streams.active
