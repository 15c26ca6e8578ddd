"""The house is kept: no module lies about unused, names in docstrings exist, and sizes only fall.

What is over a limit stands in a table with its size in tens, the most that is allowed, and the reason why it
stays. Where such a file or function has become smaller, write the smaller number. ``make sizes`` prints them.
"""

import builtins
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from tests.sizes import (
    LARGE_FILE_LINES,
    LARGE_FOLDER_FILES,
    LARGE_FUNCTION_LINES,
    file_lines,
    folder_files,
    function_lines,
)
from tests.sources import ROOT, Source, dotted, files, is_test, modules, sources, text_of

LARGE_FILES = {
    "jepsen_like/simulation/cluster/faults/planned.py": 510,  # one class a fault
    "kafka_client/producer/producer.py": 530,
    "metadata_log/controller/driver.py": 690,  # the one place where decisions meet the quorum
    "quorum/driver.py": 530,  # the one place where effects are carried out
}
LARGE_FUNCTIONS = {
    "broker/apis/records/fetch_reader.py:FetchReader.read": 70,
    "broker/replicas/data_plane.py:DataPlane.__init__": 110,  # composition
    "group_coordinator/loading.py:Loader._load": 110,  # the loop over records, measured
    "jepsen_like/simulation/cluster/checks/derived_checks.py:_find_in_producers": 70,
    "jepsen_like/simulation/quorum/scenario.py:Scenario.run": 70,  # a match over steps
    "kafka_protocol/record_codec.py:_read_records": 70,  # the loop over records, measured
    "kafka_protocol/record_walk.py:RecordWalk._read_records": 110,  # the specification of the compiled walk
    "log_store/opening.py:open_parts": 80,
    "metadata_log/controller/elections.py:PartitionChangeBuilder.build": 80,  # a decision, in its order
    "node/broker_node.py:BrokerNode.__init__": 170,  # composition
    "node/node.py:Node._start": 70,  # what starts when
    "runtime/simulated/rpc.py:SimTransport.send": 70,  # every fate of a call
}
LARGE_FOLDERS = {"tests/": 32, "tests/interop/": 36}
LARGEST_OF_TESTS = {"files": 900, "functions": 110}
REFERENCE = re.compile(r":(?:mod|class|meth|func|data|attr|exc):`[~!]?([^`]+)`")
OUTSIDE = {*dir(builtins), *sys.stdlib_module_names, "click", "pytest", "pyspark", "grpc", "aiohttp"}
RUN_BY_NAME = {"conftest", "__init__", "__main__", "pyspark_pykraft"}
"""By pytest, Python and Spark."""


# --- sizes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "limit", "larger"),
    [("files", LARGE_FILE_LINES, LARGE_FILES), ("functions", LARGE_FUNCTION_LINES, LARGE_FUNCTIONS)],
    ids=["files", "functions"],
)
def test_sizes_only_fall(what: str, limit: int, larger: Mapping[str, int]) -> None:
    sizes = file_lines() if what == "files" else function_lines()
    of_tests = LARGEST_OF_TESTS[what]
    grown = {
        name: size
        for name, size in sizes.items()
        if size > (of_tests if is_test(name) else larger.get(name, limit))
    }
    assert grown == {}, f"split it by what happens; the limit is {limit} lines"
    assert [name for name in larger if name not in sizes] == [], "the row of the table is not needed"


def test_folders_only_shrink() -> None:
    large = {
        folder: count
        for folder, count in folder_files().items()
        if count > LARGE_FOLDERS.get(folder, LARGE_FOLDER_FILES)
    }
    assert large == {}, f"more than {LARGE_FOLDER_FILES} modules"


# --- what nobody uses ------------------------------------------------------------------------------------


def test_every_module_is_used() -> None:
    """It is imported, or some file names it that starts programs or lists commands."""
    imported = set[str]().union(*(source.imports for source in sources().values()))
    named = _texts_that_name_files()
    unused = [
        path
        for path in modules()
        if not imported & _imported_as(path) and not _is_run_by_name(path) and not _is_named(path, named)
    ]
    assert unused == []


def _imported_as(path: str) -> set[str]:
    name = dotted(path)
    return {name, *(name.removeprefix(f"{folder}.") for folder in ("benchmarks", "examples", "packaging"))}


def _is_run_by_name(path: str) -> bool:
    stem = path.rpartition("/")[2].removesuffix(".py")
    return stem in RUN_BY_NAME or (stem.startswith("test_") and is_test(path))


def _is_named(path: str, texts: Mapping[str, str]) -> bool:
    """As a program or by its name in code; a page that only tells of it does not count."""
    file_name, name = path.rpartition("/")[2], dotted(path)
    in_page = re.compile(rf"-m {re.escape(name)}\b|python3? {re.escape(path)}")
    if path.startswith(("benchmarks/", "examples/")):
        in_page = re.compile(rf"(?<![\w/]){re.escape(file_name)}|{re.escape(path)}")
    in_code = re.compile(
        rf"(?<![\w/]){re.escape(file_name)}|{re.escape(path)}|(?<!\w){re.escape(name.removeprefix('pykraft.'))}\b"
    )
    return any(
        (in_page if other.endswith(".md") else in_code).search(text)
        for other, text in texts.items()
        if other != path and (file_name in text or name.removeprefix("pykraft.") in text)
    )


@cache
def _texts_that_name_files() -> dict[str, str]:
    named = ("Makefile", "pyproject.toml", "mkdocs.yml", ".ci/run", "packaging/Dockerfile", *files(".md"))
    return {path: text_of(path) for path in (*named, *modules()) if (ROOT / path).exists()}


# --- names in docstrings ---------------------------------------------------------------------------------


def test_references_in_docstrings_lead_somewhere() -> None:
    dead = [
        f"{path}: {reference}"
        for path in modules()
        for reference in REFERENCE.findall(text_of(path))
        if not _leads_somewhere(reference)
    ]
    assert dead == []


def test_packages_say_in_one_line_what_they_are_and_name_what_exists() -> None:
    for path in modules():
        if path.endswith("__init__.py") and not is_test(path):
            docstring = sources()[path].docstring
            assert docstring.partition("\n")[0], path
            for name in re.findall(r"``([a-z]\w*(?:\.\w+)*)``", docstring):
                known = name in ("pykraft", "pykraft.http.listener", "report.html") or _leads_somewhere(name)
                assert known, f"{path}: {name}"


def _leads_somewhere(reference: str) -> bool:
    first, *rest = reference.lstrip(".").split(".")
    if first == "pykraft":
        return _is_in_a_module(rest)
    if not rest:
        return first in _stems() or first in _names() or first in OUTSIDE
    if first in OUTSIDE - _stems():
        return True
    *owners, name = first, *rest
    if not all(owner in _stems() or owner in _names() for owner in owners):
        return False
    if owners[-1] in _stems():
        return name in _names() or name in _stems()
    return name in _members(owners[-1])


def _is_in_a_module(parts: list[str]) -> bool:
    """Whether these are a module, what it defines or offers, and a member of that."""
    for end in range(len(parts), 0, -1):
        module = "/".join(parts[:end])
        found = sources().get(f"{module}.py") or sources().get(f"{module}/__init__.py")
        if found is not None:
            return _has(found, *parts[end:])
    return False


def _has(module: Source, name: str = "", member: str = "") -> bool:
    offered = name in module.names or any(it.endswith(f".{name}") for it in module.imports)
    return not name or (offered and (not member or member in _members(name)))


@cache
def _stems() -> frozenset[str]:
    return frozenset(part for path in modules() for part in path.removesuffix(".py").split("/"))


@cache
def _names() -> frozenset[str]:
    return frozenset[str]().union(*(source.names for source in sources().values()))


@cache
def _members(owner: str) -> frozenset[str]:
    """Of all classes of that name, and of their bases."""
    found, known, left = set[str](), set[str](), {owner}
    while left:
        known |= left
        of_left = list(_classes(left))
        found = found.union(*(members for members, _ in of_left))
        left = set[str]().union(*(bases for _, bases in of_left)) - known
    return frozenset(found)


def _classes(names: set[str]) -> Iterator[tuple[set[str], set[str]]]:
    """Members and bases of each of them."""
    for source in sources().values():
        for name in names & source.bases.keys():
            yield source.members.get(name, set()), source.bases[name]
