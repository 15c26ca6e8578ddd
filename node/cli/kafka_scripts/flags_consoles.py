"""The flags of Kafka's console and measuring tools, and what ``pykraft`` has in their place. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykraft.node.cli.kafka_scripts.tool import KafkaTool


def _same(*flags: str) -> dict[str, str]:
    """Flags that are ours, too, under the same names."""
    return dict.fromkeys(flags, "")


_CLIENT: Final = _same("--bootstrap-server", "--topic", "--command-config")

_TOOLS: Final = (
    KafkaTool(
        "kafka-console-producer",
        "producer",
        _CLIENT
        | _same("--sync", "--compression-codec", "--batch-size", "--message-send-max-retries")
        | _same("--retry-backoff-ms", "--timeout", "--request-required-acks", "--request-timeout-ms")
        | _same(
            "--metadata-expiry-ms", "--max-block-ms", "--max-memory-bytes", "--max-partition-memory-bytes"
        )
        | _same("--line-reader", "--socket-buffer-size", "--property", "--reader-property", "--reader-config")
        | _same("--producer-property", "--command-property", "--producer.config", "--version"),
    ),
    KafkaTool(
        "kafka-console-consumer",
        "consumer",
        _CLIENT
        | _same("--include", "--partition", "--offset", "--from-beginning", "--max-messages", "--timeout-ms")
        | _same("--consumer-property", "--command-property", "--consumer.config", "--formatter", "--property")
        | _same("--formatter-property", "--formatter-config", "--skip-message-on-error", "--key-deserializer")
        | _same(
            "--value-deserializer", "--enable-systest-events", "--isolation-level", "--group", "--version"
        ),
    ),
    KafkaTool(
        "kafka-producer-perf-test",
        "producer-perf-test",
        _CLIENT
        | _same(
            "--num-records", "--record-size", "--payload-file", "--payload-monotonic", "--payload-delimiter"
        )
        | _same(
            "--throughput", "--producer-props", "--command-property", "--producer.config", "--print-metrics"
        )
        | _same(
            "--transactional-id", "--transaction-duration-ms", "--warmup-records", "--reporting-interval"
        ),
    ),
    KafkaTool(
        "kafka-consumer-perf-test",
        "consumer-perf-test",
        _CLIENT
        | _same("--include", "--group", "--fetch-size", "--command-property", "--from-latest", "--version")
        | _same("--socket-buffer-size", "--consumer.config", "--print-metrics", "--show-detailed-stats")
        | _same("--timeout", "--messages", "--num-records", "--reporting-interval", "--date-format")
        | _same("--hide-header"),
    ),
    KafkaTool(
        "kafka-verifiable-producer",
        "verifiable-producer",
        _CLIENT
        | _same("--max-messages", "--throughput", "--acks", "--producer.config", "--message-create-time")
        | _same("--value-prefix", "--repeating-keys"),
    ),
    KafkaTool(
        "kafka-verifiable-consumer",
        "verifiable-consumer",
        _CLIENT
        | _same("--group-protocol", "--group-remote-assignor", "--group-id", "--group-instance-id")
        | _same("--max-messages", "--session-timeout", "--verbose", "--enable-autocommit", "--reset-policy")
        | _same("--assignment-strategy", "--consumer.config"),
    ),
)

CONSOLE_TOOLS: Final[Mapping[str, KafkaTool]] = {tool.script: tool for tool in _TOOLS}
"""By script."""
