"""The workloads are offered by name."""

import click

from pykraft.jepsen_like.faults.workloads.registry import WORKLOADS
from pykraft.node.cli.jepsen import run


def test_the_command_line_offers_every_workload() -> None:
    (option,) = [parameter for parameter in run.params if parameter.name == "workload"]
    assert isinstance(option.type, click.Choice)
    assert set(option.type.choices) == set(WORKLOADS)
