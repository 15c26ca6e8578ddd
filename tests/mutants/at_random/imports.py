"""``python -m tests.mutants.at_random.imports DIRECTORY PACKAGE…``: what runs when all modules are imported.

In a process of its own, which has imported none of them.
"""

import importlib
import sys
from contextlib import suppress
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parents[3]


def main(directory: str, *packages: str) -> None:
    watched = coverage.Coverage(
        data_file=None, config_file=False, source=[str(ROOT / name) for name in packages]
    )
    watched.start()
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.stem != "__main__":
                name = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
                with suppress(ImportError):  # it needs what is not installed
                    importlib.import_module(f"pykraft.{name.removesuffix('.__init__')}")
    watched.stop()

    from tests.mutants.at_random.coverage_map import IMPORTS, CoverageMap, MeasuredTest

    data = watched.get_data()
    lines = {
        str(Path(source).relative_to(ROOT)): {IMPORTS: data.lines(source) or []}
        for source in data.measured_files()
    }
    CoverageMap(Path(directory)).write(IMPORTS, [MeasuredTest(IMPORTS, IMPORTS, 0, True, False)], lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
