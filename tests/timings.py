"""Where the time of tests went: ``python -m tests.timings build/timings-*.xml`` prints the slowest.

``--write`` renews ``tests/slowest_files.txt``, by which the slowest files begin first, so that none is left
over at the end for one worker, and ``tests/slow_tests.txt``: what took over a second is marked *slow*, and
so left out of ``make check``.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

SLOWEST: Final = Path(__file__).with_name("slowest_files.txt")
SLOW: Final = Path(__file__).with_name("slow_tests.txt")
SHOWN: Final = 60
SLOW_FROM_S: Final = 1.0
WRITTEN_FROM_S: Final = 5.0


def read(reports: Iterable[Path]) -> Counter[tuple[str, str]]:
    """Seconds by file and test."""
    took: Counter[tuple[str, str]] = Counter()
    for report in reports:
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            file = case.attrib["classname"].replace(".", "/") + ".py"
            took[file, case.attrib["name"]] += float(case.attrib["time"])  # type: ignore[assignment]
    return took


def begin_first() -> list[str]:
    """Files below the root, the slowest first."""
    return SLOWEST.read_text(encoding="utf-8").split()


def slow_tests() -> frozenset[str]:
    """Functions as ``tests/test_file.py::test_function``."""
    return frozenset(SLOW.read_text(encoding="utf-8").split())


def main(arguments: list[str]) -> None:
    reports = [Path(one) for one in arguments if one != "--write"]
    took = read(reports)
    files: Counter[str] = Counter()
    for (file, _), took_s in took.items():
        files[file] += took_s
    for title, table in (("files", files), ("tests", {"::".join(test): s for test, s in took.items()})):
        print(f"\nThe slowest {title} of {len(table)}, in seconds:")
        for name, took_s in Counter(table).most_common(SHOWN):
            print(f"{took_s:8.1f}  {name}")
    for report in reports:
        suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
        print(f"{report.name}: {suite.attrib['tests']} tests in {float(suite.attrib['time']) / 60:.1f} min")
    if "--write" in arguments:
        slowest = [file for file, took_s in files.most_common() if took_s >= WRITTEN_FROM_S]
        SLOWEST.write_text("\n".join([*slowest, ""]), encoding="utf-8")
        slow = {f"{file}::{name.partition('[')[0]}" for (file, name), s in took.items() if s > SLOW_FROM_S}
        known = [test for test in slow if Path(test.partition("::")[0]).exists()]  # none of a class
        SLOW.write_text("\n".join([*sorted(known), ""]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
