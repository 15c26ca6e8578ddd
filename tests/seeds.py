"""How many seeds of a simulation are tried in ``make check``, and how many in ``make test-long``."""

import pytest


def seeds(count: int, checked: int) -> list[object]:
    """From 0 on: the first ``checked`` always, the others marked ``long``. Any can be named by its id."""
    return [*range(checked), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(checked, count))]
