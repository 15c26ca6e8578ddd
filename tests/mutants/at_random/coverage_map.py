"""Which tests execute which lines: one file for each file of tests, written once and shared by working trees.

A shard is named by the text of its test file, so that an interrupted build continues where it ended, and a
test file that changes is measured again by itself. The product may change meanwhile: a shard names the text
of each source that it saw, the texts are kept beside it, and a line of today is looked up as the line of that
text from which it comes (:func:`difflib`). A line that is new since is covered by whatever covers its
neighbours.
"""

import gzip
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
DEFAULT = ROOT / "build" / "coverage-map"
IMPORTS = "imports"
"""In place of a file of tests, and of its only one: what runs when all modules are imported."""
_SOURCES = "sources"
_NOTHING: dict[str, Any] = {"sources": {}}


def digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class MeasuredTest:
    """``cpu_s``: its processor time while it was measured, with that of its child processes; ``passed``: so.

    ``shard``: of the file that it is in; ``spawns``: it started processes, in which nothing is measured.
    """

    name: str
    shard: str
    cpu_s: float
    passed: bool
    spawns: bool


class CoverageMap:
    """In this directory, for the sources of this tree."""

    def __init__(self, directory: Path = DEFAULT, root: Path = ROOT) -> None:
        self.directory = directory
        self._root = root
        self._shards: dict[str, dict[str, Any]] = {}
        self._old_lines = cache(self._read_old_lines)

    def shard_of(self, test_file: str) -> Path:
        """Where the measurement of a test file, as it is now, belongs; also of a name that is no file."""
        path = self._root / test_file
        text = path.read_bytes() if path.exists() else b""
        return self.directory / f"{_flat(test_file)}-{digest(text)}.json.gz"

    def is_measured(self, test_file: str) -> bool:
        return self.shard_of(test_file).exists()

    def write(
        self,
        test_file: str,
        tests: Iterable[MeasuredTest],
        lines: Mapping[str, Mapping[str, Iterable[int]]],
    ) -> None:
        """``lines``: those that a test executed, by source (below the root) and by the name of the test."""
        tests = tuple(tests)
        numbers = {test.name: number for number, test in enumerate(tests)}
        sources, executed = {}, {}
        for source, by_test in sorted(lines.items()):
            text = (self._root / source).read_bytes()
            sources[source] = digest(text)
            _write_once(self.directory / _SOURCES / digest(text), text)
            sets: dict[str, list[int]] = defaultdict(list)
            for test, found in by_test.items():
                sets[hex(sum(1 << line for line in set(found)))].append(numbers[test])
            executed[source] = list(sets.items())
        shard = {
            "tests": [(test.name, round(test.cpu_s, 4), test.passed, test.spawns) for test in tests],
            "sources": sources,
            "lines": executed,
        }
        _write_once(self.shard_of(test_file), gzip.compress(json.dumps(shard).encode(), mtime=0))

    def load(self, test_files: Iterable[str]) -> list[str]:
        """Those that were never measured. An older measurement is better than none of a file as it is."""
        newest: dict[str, Path] = {}
        for path in sorted(self.directory.glob("*.json.gz"), key=lambda path: path.stat().st_mtime):
            newest[path.name.rpartition("-")[0]] = path
        missing = []
        for test_file in test_files:
            path = self.shard_of(test_file)
            path = path if path.exists() else newest.get(_flat(test_file), path)
            if path.exists():
                self._shards[test_file] = json.loads(gzip.decompress(path.read_bytes()))
            else:
                missing.append(test_file)
        return missing

    def covering(self, source: str, lines: Iterable[int]) -> list[MeasuredTest]:
        """The tests that execute any of these lines of a source as it is now, the fastest first."""
        return self._covering(source, lines, (name for name in self._shards if name != IMPORTS))

    def _covering(self, source: str, lines: Iterable[int], shards: Iterable[str]) -> list[MeasuredTest]:
        wanted, found = tuple(lines), []
        for test_file in shards:
            shard = self._shards.get(test_file, _NOTHING)
            known = shard["sources"].get(source)
            if known is None:
                continue
            mask = sum(1 << line for line in {self._old_lines(source, known)[line] for line in wanted})
            numbers = {
                number for bits, tests in shard["lines"][source] if int(bits, 16) & mask for number in tests
            }
            found += [_test(test_file, shard["tests"][number]) for number in numbers]
        return sorted(found, key=lambda test: (test.cpu_s, test.name))

    def tests_of(self, test_file: str) -> list[MeasuredTest]:
        shard = self._shards.get(test_file)
        return [] if shard is None else [_test(test_file, row) for row in shard["tests"]]

    def runs_when_imported(self, source: str, lines: Iterable[int]) -> bool:
        """As far as that was measured."""
        return any(test.name == IMPORTS for test in self._covering(source, lines, [IMPORTS]))

    def _read_old_lines(self, source: str, known: str) -> Mapping[int, int]:
        """Of each line of the source as it is now: the line of the text that was measured."""
        old = (self.directory / _SOURCES / known).read_bytes().splitlines()
        new = (self._root / source).read_bytes().splitlines()
        return dict(_matching(old, new))


def _matching(old: list[bytes], new: list[bytes]) -> Iterator[tuple[int, int]]:
    """Of each line of the new text, counted from 1, one of the old."""
    if old == new:
        yield from ((line, line) for line in range(1, len(new) + 1))
        return
    for _, first_old, end_old, first_new, end_new in SequenceMatcher(None, old, new, False).get_opcodes():
        for line in range(first_new, end_new):
            yield line + 1, min(first_old + line - first_new, max(end_old - 1, first_old), len(old) - 1) + 1


def _test(test_file: str, row: list[Any]) -> MeasuredTest:
    name, cpu_s, passed, spawns = row
    return MeasuredTest(name, test_file, cpu_s, passed, spawns)


def _flat(test_file: str) -> str:
    return test_file.removesuffix(".py").replace("/", ".")


def _write_once(path: Path, content: bytes) -> None:
    """Another process may write the same."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.write_bytes(content)
        part.replace(path)
