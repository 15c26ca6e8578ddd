"""Branch coverage as the last ``make coverage`` measured it: each package, and the ten files that lack most.

It is reported and gates nothing: planted bugs tell what tests find, and this where to look for more.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping

from tests.sources import room_of


def report(measured: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Iterator[str]:
    """From the files of what ``coverage json`` writes."""
    total, covered = Counter[str](), Counter[str]()
    for path, of_file in measured.items():
        summary = of_file["summary"]
        for key in (room_of(path), path):
            total[key] += summary["num_branches"]
            covered[key] += summary["covered_branches"]
    missing = total - covered
    rooms = sorted({room_of(path) for path in measured})
    for title, names in (
        ("Branches covered, of each package:", rooms),
        (
            "The ten files that lack most:",
            [name for name, _ in missing.most_common() if name in measured][:10],
        ),
    ):
        yield title
        for name in names:
            if total[name]:
                share = covered[name] / total[name]
                yield f"  {share:4.0%} {name}: {missing[name]} of {total[name]} not taken"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in report(json.load(sys.stdin)["files"]))
