"""An image as a tree of directories and files, for the metadata shell. Paths and names are Kafka's.

A directory's entries are built when it is listed, so that an image of a million partitions costs nothing
before. This file only reads the image and does not print.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.ids import uuid_to_str
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.image import MetadataImage, TopicImage
from pykraft.metadata_log.record_json import value_to_json


@dataclass(frozen=True, slots=True)
class File:
    """A leaf; ``text`` is what ``cat`` prints."""

    text: str


@dataclass(frozen=True, slots=True)
class Directory:
    """``entries`` builds the children by name when called; they are listed in its order."""

    entries: Callable[[], Mapping[str, Node]]


Node = File | Directory


def build_tree(image: MetadataImage) -> Directory:
    """``/image`` and below."""
    return Directory(lambda: {"image": Directory(lambda: _image(image))})


def resolve(root: Directory, path: str) -> list[tuple[str, Node]]:
    """The absolute path and node of each match of ``path``; its components may contain ``*``, ``?``, ``[]``.

    ``path`` is absolute and may contain ``.`` and ``..``. Without a match the list is empty.
    """
    names: list[str] = []
    for name in path.split("/"):
        if name == "..":
            names = names[:-1]
        elif name not in ("", "."):
            names.append(name)
    found: list[tuple[str, Node]] = [("/", root)]
    for name in names:
        found = [match for at, node in found for match in _matching(at, node, name)]
    return found


def walk(path: str, node: Node, depth: int = 0) -> Iterator[tuple[int, str, Node]]:
    """Depth, path and node of ``node`` itself, then of everything below it."""
    yield depth, path, node
    if isinstance(node, Directory):
        for name, child in node.entries().items():
            yield from walk(_join(path, name), child, depth + 1)


def _matching(path: str, node: Node, pattern: str) -> Iterator[tuple[str, Node]]:
    if isinstance(node, File):
        return
    entries = node.entries()
    if pattern in entries:
        yield _join(path, pattern), entries[pattern]
        return
    for name, child in entries.items():
        if fnmatchcase(name, pattern):
            yield _join(path, name), child


def _join(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def _image(image: MetadataImage) -> dict[str, Node]:
    return {
        "cluster": Directory(lambda: {"brokers": _json_files(image.brokers)}),
        "configs": Directory(lambda: _configs(image)),
        "features": Directory(
            lambda: {name: File(str(image.features[name])) for name in sorted(image.features)}
        ),
        "producerIds": Directory(lambda: {"nextProducerId": File(str(image.next_producer_id))}),
        "provenance": File(f"offset {image.offset}, epoch {image.epoch}"),
        "topics": Directory(lambda: _topics(image)),
    }


def _json_files(items: Mapping[Any, Any]) -> Directory:
    return Directory(lambda: {str(key): _json_file(items[key]) for key in sorted(items)})


def _json_file(value: Any) -> File:
    return File(json.dumps(value_to_json(value), indent=2))


def _configs(image: MetadataImage) -> dict[str, Node]:
    kinds: dict[str, dict[str, Node]] = {}
    for kind, name in sorted(image.configs):
        values = image.configs[kind, name]
        files: dict[str, Node] = {key: File(values[key]) for key in sorted(values)}
        below = kinds.setdefault(ConfigResourceType(kind).name, {})
        below[name or "<default>"] = Directory(lambda files=files: files)  # type: ignore[misc]
    return {kind: Directory(lambda below=below: below) for kind, below in kinds.items()}  # type: ignore[misc]


def _topics(image: MetadataImage) -> dict[str, Node]:
    def by_id() -> dict[str, Node]:
        return {
            uuid_to_str(topic_id): _topic(image.topics_by_id[topic_id])
            for topic_id in sorted(image.topics_by_id)
        }

    def by_name() -> dict[str, Node]:
        return {name: _topic(image.topics_by_id[image.topic_ids[name]]) for name in sorted(image.topic_ids)}

    return {"byId": Directory(by_id), "byName": Directory(by_name)}


def _topic(topic: TopicImage) -> Directory:
    def entries() -> dict[str, Node]:
        partitions: dict[str, Node] = {
            str(index): _json_file(partition) for index, partition in enumerate(topic.partitions)
        }
        return {"name": File(topic.name), "id": File(uuid_to_str(topic.id)), **partitions}

    return Directory(entries)
