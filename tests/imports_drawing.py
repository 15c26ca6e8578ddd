"""The drawing of imports in ARCHITECTURE.md: made from the code, on the floors of the layers contract."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Set

from tests.sources import dotted, room_of, sources, text_of

BEGIN = "<!-- Imports, drawn by tests/test_docs.py; rewrite with PYKRAFT_REWRITE_DOCS=1 -->"
END = "<!-- end of the drawing -->"


def build_architecture_page() -> str:
    """What is written by hand, and the drawing between its markers."""
    before, _, rest = text_of("ARCHITECTURE.md").partition(BEGIN)
    after = rest.partition(END)[2]
    return "\n".join([f"{before}{BEGIN}", "", "```mermaid", *_drawing(), "```", "", f"{END}{after}"])


def _drawing() -> Iterator[str]:
    floors, exceptions = _contract()
    height = {room: -number for number, floor in enumerate(floors) for room in floor}
    imports = _imports(height.keys(), exceptions)
    up = [
        (room, other) for room, others in imports.items() for other in others if height[other] >= height[room]
    ]
    assert not up, f"arrows that do not lead down: {up}"
    yield "flowchart TB"
    for number, floor in enumerate(floors):
        if len(floor) > 1:
            yield from (f'    subgraph floor{number}[" "]', *(f"        {room}" for room in floor), "    end")
    for room, others in sorted(imports.items(), key=lambda it: (-height[it[0]], it[0])):
        beyond = set[str]().union(*(_reached(other, imports) for other in others))
        yield from (f"    {room} --> {other}" for other in sorted(others - beyond))


def _contract() -> tuple[list[list[str]], list[re.Pattern[str]]]:
    """The rooms of each floor, and which imports are exceptions."""
    contracts = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    (contract,) = (it for it in contracts if it["name"] == "A layer imports only what is below it")
    floors = [[name.strip().removeprefix("pykraft.") for name in it.split("|")] for it in contract["layers"]]
    patterns = [re.escape(it).replace(r"\.\*\*", r"[\w.]*") for it in contract["ignore_imports"]]
    return floors, [re.compile(pattern.replace(r"\ ", " ")) for pattern in patterns]


def _imports(rooms: Set[str], exceptions: list[re.Pattern[str]]) -> dict[str, set[str]]:
    found = {room: set[str]() for room in rooms}
    for path, source in sources().items():
        room, module = room_of(path), dotted(path)
        if room not in rooms:
            continue
        allowed = {it for it in source.imports if any(one.match(f"{module} -> {it}") for one in exceptions)}
        for name in source.imports - allowed:
            other = name.split(".")[1] if name.startswith("pykraft.") else ""
            is_package_of_allowed = any(it.startswith(f"{name}.") for it in allowed)
            if other in rooms and other != room and not is_package_of_allowed:
                found[room].add(other)
    return found


def _reached(room: str, imports: Mapping[str, Set[str]]) -> set[str]:
    """All that a room imports, itself or by others."""
    return set(imports[room]).union(*(_reached(other, imports) for other in imports[room]))
