"""How large the house is: ``make sizes``. :mod:`tests.test_tidy` holds it to that.

Counted are lines of Python as they stand, comments and blank lines included, without what protoc generates.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator

from tests.sources import files, is_test, modules, room_of, sources, text_of

LARGE_FILE_LINES = 500
LARGE_FUNCTION_LINES = 60
LARGE_FOLDER_FILES = 25


def file_lines() -> dict[str, int]:
    return {path: text_of(path).count("\n") for path in modules()}


def function_lines() -> dict[str, int]:
    return {name: count for source in sources().values() for name, count in source.functions.items()}


def folder_files() -> Counter[str]:
    """How many modules each folder has, ``__init__`` not counted."""
    named = (path for path in modules() if not path.endswith("__init__.py"))
    return Counter(f"{path.rpartition('/')[0]}/" for path in named)


def report() -> Iterator[str]:
    lines = file_lines()
    rooms = Counter[str]()
    for path, count in lines.items():
        rooms[room_of(path)] += count
    of_tests = rooms.pop("tests")
    yield f"Python lines outside tests: {rooms.total():,}"
    yield from (f"  {count:7,} {room}" for room, count in rooms.most_common())
    yield f"Python lines of tests: {of_tests:,}"
    yield f"Words of pages: {sum(len(text_of(path).split()) for path in files('.md')):,}"
    functions = function_lines()
    yield _above("Folders", folder_files(), LARGE_FOLDER_FILES, "modules")
    yield _above("Files", lines, LARGE_FILE_LINES, "lines")
    yield _above("Functions", functions, LARGE_FUNCTION_LINES, "lines")
    yield from _longest("files", lines.items())
    yield from _longest("functions", functions.items())


def _above(what: str, sizes: dict[str, int], limit: int, unit: str) -> str:
    names = [name for name, size in sizes.items() if size > limit]
    tests = sum(map(is_test, names))
    return f"{what} of more than {limit} {unit}: {len(names) - tests}, and {tests} of tests"


def _longest(what: str, sizes: Iterable[tuple[str, int]]) -> Iterator[str]:
    yield f"The ten longest {what} outside tests:"
    outside = Counter({name: size for name, size in sizes if not is_test(name)})
    yield from (f"  {size:7,} {name}" for name, size in outside.most_common(10))


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in report())
