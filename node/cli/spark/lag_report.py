"""``pykraft spark lag-report``: how far consumer groups are behind, and how fast what they read grows."""

from __future__ import annotations

import time
from typing import Final

import click

from pykraft.node.cli.shared.common import bootstrap_option, json_option, print_table
from pykraft.node.cli.shared.reach import check_reachable
from pykraft.node.cli.spark.spark import spark_session, with_master

_COLUMNS: Final = (
    *("GROUP", "TOPIC", "PARTITION", "COMMITTED", "END-OFFSET", "LAG", "EXPIRED"),
    *("RECORDS-PER-S", "BEHIND-MS"),
)


@click.command()
@bootstrap_option
@click.option("--group", "groups", multiple=True, help="A group; may be repeated. Without it all groups.")
@click.option(
    "--window-s",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Rates are of records not older than this.",
)
@json_option
@with_master
def command(bootstrap_server: str, groups: tuple[str, ...], window_s: int, master: str) -> None:
    """Print lag, rate of new records, and waiting time of the oldest unread one, by group and partition."""
    from pykraft.spark.jobs.lag_report import lag_report

    check_reachable(bootstrap_server)
    with spark_session("pykraft lag-report", master) as session:
        now_ms = time.time_ns() // 1_000_000
        found = lag_report(session, bootstrap_server, groups, window_s * 1000, now_ms)
    rows = [
        (
            *(one.group_id, one.topic, one.partition, one.committed, one.end_offset, one.lag, one.expired),
            round(one.records_per_s, 3),
            one.behind_ms,
        )
        for one in found
    ]
    print_table(_COLUMNS, rows)
