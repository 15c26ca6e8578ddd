"""The programs of the clients for Go and for Rust, each built once into the user's cache directory.

The name of a built program is made of the content of its sources and the version of the toolchain, so that a
change builds it again; what it depends on is compiled again only for another toolchain or lock file. Without
the toolchain or the registry the tests that need a program are skipped with a message; a program that does
not compile fails them.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from pykraft.testing.processes.maven import cache_directory
from tests.interop.java_jars import compile_client, fetch_server, need, run
from tests.interop.node_packages import node_packages

FETCH_TIMEOUT_S: Final = 180
BUILD_TIMEOUT_S: Final = 600
"""Two slow cores need a minute or two for each program, the first time."""


@dataclass(frozen=True)
class Program:
    """A directory of sources beside this file.

    ``fetch`` gets what they depend on, ``build`` compiles it into the directory ``{out}``.
    """

    name: str
    tool: str
    oldest: str
    """The version of the tool that the clients need."""
    sources: Sequence[str]
    locks: Sequence[str]
    """Those that say what is depended on."""
    fetch: Sequence[str]
    build: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        return Path(__file__).with_name(self.name)

    @property
    def not_tested(self) -> str:
        return f"{self.name.replace('_', ' ').upper()} NOT TESTED"


GO_CLIENTS: Final = Program(
    "go_clients",
    "go",
    "1.21",  # from there on go fetches the version that go.mod asks for
    ("go.mod", "go.sum", "*.go"),
    ("go.mod", "go.sum"),
    ("go", "mod", "download"),
    ("go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-o", "{out}/go_clients", "."),
    {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"},
)
RUST_CLIENTS: Final = Program(
    "rust_clients",
    "cargo",
    "1.95",
    ("Cargo.toml", "Cargo.lock", "src/*.rs"),
    ("Cargo.toml", "Cargo.lock"),
    ("cargo", "fetch", "--quiet", "--locked", "--target", "host-tuple"),
    ("cargo", "build", "--quiet", "--locked", "--offline", "--target-dir", "{out}"),
)


def built(program: Program) -> Path:
    """The program, built when it is first needed: by one process, while others wait for it."""
    need(program.name.replace("_", " ").upper(), program.tool)
    said = run([program.tool, "version"], FETCH_TIMEOUT_S).stdout.strip()
    found = re.search(r"\d+\.\d+", said)
    if found is None or _numbers(found[0]) < _numbers(program.oldest):
        pytest.skip(f"{program.not_tested}: {said} is older than {program.oldest}")
    executable = cache_directory() / f"{program.name}-{_key(program, said, program.sources)}"
    if not executable.exists():
        with _lock(cache_directory() / f"{program.name}.lock"):
            if not executable.exists():
                kept = f"{program.name}-{_key(program, said, program.locks)}"
                _build(program, executable, cache_directory() / "build" / kept)
    return executable


def _build(program: Program, executable: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    fetched = _step(program, program.fetch, FETCH_TIMEOUT_S, out)
    if fetched.returncode != 0:
        pytest.skip(f"{program.not_tested}: {' '.join(program.fetch)} failed: {fetched.stderr[-500:]}")
    compiled = _step(program, program.build, BUILD_TIMEOUT_S, out)
    assert compiled.returncode == 0, compiled.stderr[-4000:]
    (made,) = (path for path in (out / program.name, out / "debug" / program.name) if path.exists())
    unfinished = executable.with_suffix(".unfinished")
    shutil.copy(made, unfinished)
    unfinished.rename(executable)


def _step(
    program: Program, command: Sequence[str], timeout_s: float, out: Path
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [part.format(out=out) for part in command],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            cwd=program.directory,
            env=os.environ | program.environment,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{program.not_tested}: {' '.join(command[:2])} took more than {timeout_s:.0f} s")


def _key(program: Program, toolchain: str, patterns: Sequence[str]) -> str:
    digest = hashlib.sha256(toolchain.encode())
    for pattern in patterns:
        for path in sorted(program.directory.glob(pattern)):
            content = path.read_bytes()
            digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Everything that clients of other languages need, ahead of the tests; what is missing is said."""
    print(f"in {cache_directory()}:")
    made: tuple[tuple[str, Callable[[], object]], ...] = (
        (GO_CLIENTS.name, partial(built, GO_CLIENTS)),
        (RUST_CLIENTS.name, partial(built, RUST_CLIENTS)),
        ("node", node_packages),
        ("kafka", partial(fetch_server, "KAFKA")),
        *(
            (f"{it}.java", partial(compile_client, it))
            for it in ("JavaClient", "Transactions", "GroupMembers")
        ),
    )
    for name, make in made:
        try:
            print(f"  {name}: {make()}", flush=True)
        except pytest.skip.Exception as error:
            print(f"  {name}: {error}")


if __name__ == "__main__":
    main()
