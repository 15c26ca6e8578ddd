"""Draws mutants over packages of the product by a seed.

The operator is drawn first, each as likely as the others, for there are ten conditions for each exchange of
two awaits; then one of all places at which it can be at work. A line is drawn once.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random

from tests.mutants.at_random.coverage_map import ROOT
from tests.mutants.at_random.finder import OPERATORS, compiles, find_mutants
from tests.mutants.at_random.known_types import KnownTypes
from tests.mutants.at_random.mutant import Mutant
from tests.mutants.run_mutants import PACKAGES as COPIED

PRODUCT = tuple(name for name in COPIED if name != "jepsen_like")
"""What is drawn over. The fault runs and the simulation are instruments: they are drawn over when named."""
_GENERATED = "_pb2.py"
_INSTRUMENTS = ("runtime/simulated/", "testing/processes/")


def sources(paths: Sequence[str], root: Path = ROOT) -> list[str]:
    """Below these packages, folders and files (or ``broker/replicas`` and the like), without instruments."""
    found: set[str] = set()
    for path in paths:
        place = root / path
        if not place.exists():
            raise FileNotFoundError(f"there is no {path} in {root}")
        files = [place] if place.is_file() else place.rglob("*.py")
        found |= {file.relative_to(root).as_posix() for file in files if not file.name.endswith(_GENERATED)}
    return sorted(file for file in found if not file.startswith(_INSTRUMENTS))


def draw(paths: Sequence[str], seed: str, number: int, root: Path = ROOT) -> list[Mutant]:
    """So many, or all there are, in the order in which they were drawn."""
    known = _known_types(root)
    by_operator: dict[str, list[Mutant]] = defaultdict(list)
    texts = {path: (root / path).read_bytes() for path in sources(paths, root)}
    for path, text in texts.items():
        for mutant in find_mutants(path, text, known):
            by_operator[mutant.operator].append(mutant)
    random = Random(f"{seed} {' '.join(sorted(paths))}")
    for operator in OPERATORS:
        random.shuffle(by_operator[operator])
    drawn: dict[tuple[str, int], Mutant] = {}
    while len(drawn) < number and any(by_operator.values()):
        mutants = by_operator[random.choice(OPERATORS)]
        if mutants and compiles(mutant := mutants.pop(), texts[mutant.path]):
            drawn.setdefault((mutant.path, mutant.lines[0]), mutant)
    return list(drawn.values())


def find(keys: Sequence[str], paths: Sequence[str], root: Path = ROOT) -> Iterator[Mutant]:
    """Those with these keys."""
    known = _known_types(root)
    for path in sources(paths, root):
        for mutant in find_mutants(path, (root / path).read_bytes(), known):
            if mutant.key in keys:
                yield mutant


@cache
def _known_types(root: Path) -> KnownTypes:
    return KnownTypes(ast.parse((root / path).read_bytes()) for path in sources(PRODUCT, root))
