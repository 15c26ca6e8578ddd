"""Which topic names may be created."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.image import metric_name

MAX_NAME_LENGTH: Final = 249
METADATA_TOPIC_NAME: Final = "__cluster_metadata"
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION unless the name is legal: it becomes part of a directory name."""
    if not name:
        raise _refuse("the topic name is empty")
    if name in (".", ".."):
        raise _refuse(f"the topic name cannot be {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise _refuse(f"the topic name is longer than {MAX_NAME_LENGTH} characters")
    if _LEGAL.fullmatch(name) is None:
        raise _refuse(
            f"topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
        )
    if name == METADATA_TOPIC_NAME:
        raise _refuse(f"{name} is the name of the metadata log")


def check_collision(name: str, *in_use: Mapping[str, str]) -> None:
    """INVALID_TOPIC_EXCEPTION if another topic has the same name in metrics.

    ``in_use``: names of topics by their names in metrics (:func:`~pykraft.metadata_log.image.metric_name`).
    """
    in_metrics = metric_name(name)
    if in_metrics is None:
        return
    for names in in_use:
        other = names.get(in_metrics, name)
        if other != name:
            raise _refuse(f"topic {name} collides with existing topic {other}: '.' and '_' count as the same")


def _refuse(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
