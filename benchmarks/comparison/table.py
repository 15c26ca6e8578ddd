"""The results as markdown, and where the documentation shows them. No figure is written by hand.

Only medians and ratios that tell most are shown: the JSON files have every measure of every round.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from comparison.results import FamilyResults, Results, Row, Spread

PLOT: Final = "vs_kafka.png"
LOSS_ABOVE: Final = 0.9
QUICK_WARNING: Final = "**A run with `--quick`: it shows that the rows work; its figures mean nothing.**"
_MISSING: Final = "-"
_NAMED: Final = 5
_SIDE_BY_SIDE: Final = "librdkafka"
ABOUT: Final[Mapping[str, str]] = {
    "producers": (
        "each connection sends one record of 1 KiB, acks=1, and waits for the answer; 20 partitions."
    ),
    "memory": (
        "resident memory of one combined node, 5 s after it answers, and after it has taken and handed"
        " out 1 GB and answered 100,000 requests. Kafka's heap is 1 GB."
    ),
    "replicated": (
        "acks=all on three nodes, one partition, one record of 100 B a request: 10,000 requests one in"
        " flight, and 200 a second for 30 s. Processor time of all nodes."
    ),
    "fetchers": (
        "500 consumers wait at the end of one partition. Nothing arrives; or one record at a time:"
        " processor time an answer, and the time until the last consumer has it."
    ),
    "rebalances": (
        "ten members have 60 partitions, and ten more join one by one, with heartbeats every 50 ms; per join."
    ),
    "topics": "1,000 topics of one partition are created, each in its own request.",
    "commits": "OffsetCommit; each connection has a group of its own and one request in flight.",
    "start": "a formatted combined node, until it answers ApiVersions; the median of 5 starts.",
    "raw": (
        "prebuilt uncompressed batches, acks=1, two connections to two partitions. A batch of 1 KiB is"
        " one record."
    ),
    "idle": "the processor time of a node that nobody uses.",
    "librdkafka": (
        "one producer or consumer, four partitions, acks=all with one replica; the client bounds the"
        " time. Default batches hold up to 1,000,000 bytes or 10,000 records. A cell is the processor time"
        " per GB of values before compression, and its ratio to Kafka's."
    ),
}
"""What the page says of a family; the docstring of its rows says the rest."""


def figure(value: float) -> str:
    """Three significant digits, without an exponent."""
    if abs(value) >= 100 or value == 0:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def with_range(spread: Spread | None, unit: str = "") -> str:
    if spread is None:
        return _MISSING
    text = figure(spread.median) + (f" {unit}" if unit else "")
    low, high = figure(spread.low), figure(spread.high)
    return text if low == high else f"{text} ({low}\u2013{high})"


def published(runs: Sequence[Results]) -> str:
    """Return the text between the markers: the plot and :func:`render`."""
    return f"![pykraft / Apache Kafka, row by row]({PLOT})\n\n{render(runs)}"


def render(runs: Sequence[Results]) -> str:
    """How it was measured, the summary, and two tables: all rows, and loads of librdkafka side by side."""
    families = [family for results in runs for family in results.families]
    others = [family for family in families if family.name != _SIDE_BY_SIDE]
    lines = [*describe(runs), "", *_loads(runs), "", *summary(families), ""]
    if others:
        lines += [*about(others, ABOUT), "", *table(others), ""]
    for family in families:
        if family.name == _SIDE_BY_SIDE:
            lines += [
                *about([family], ABOUT),
                "",
                *side_by_side([(it, _load(it.name)) for it in family.rows]),
                "",
            ]
    return "\n".join([*lines, *failures(families)])


def _load(name: str) -> tuple[str, str]:
    """``produce 1 KiB, lz4, default batches`` is a row of a size and a codec in a column of the rest."""
    size, codec, batches = name.partition(" ")[2].split(", ")
    return f"{size}, {codec}", f"{name.partition(' ')[0]}, {batches}"


def describe(runs: Sequence[Results]) -> list[str]:
    """When, where and with what; a machine that is that of the run before is not named again."""
    lines: list[str] = []
    before = ""
    for results in runs:
        run = results.run
        machine = run["machine"].partition(";")[0]
        lines += [QUICK_WARNING, ""] if results.quick else []
        lines.append(
            f"- `{run['command']}` on {run['date']}: pykraft {run['pykraft']}, Apache Kafka {run['kafka']}"
            f"{'' if machine == before else f', on {machine}'}."
        )
        before = machine
    return lines


def _loads(runs: Iterable[Results]) -> list[str]:
    return [*dict.fromkeys(f"{it.run['client']}. {it.run['values']}." for it in runs)]


def summary(families: Iterable[FamilyResults]) -> list[str]:
    """The median over all rows, and which are not clearly cheaper: how many, and the worst by name."""
    ratios = {
        f"{family.name}: {row.name}": ratio.median
        for family in families
        for row in family.rows
        if (ratio := row.measures[0].ratio()) is not None
    }
    if not ratios:
        return ["No row was measured on both."]
    losses = sorted((name for name in ratios if ratios[name] > LOSS_ABOVE), key=lambda name: -ratios[name])
    counts = Counter(name.partition(":")[0] for name in losses)
    where = ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
    worst = ", ".join(f"{name} ({figure(ratios[name])})" for name in losses[:_NAMED])
    return [
        f"Median ratio over {len(ratios)} rows: **{figure(median(ratios.values()))}**."
        f" Rows above {LOSS_ABOVE}: {where}{f'; the highest: {worst}' if worst else ''}."
    ]


def about(families: Iterable[FamilyResults], texts: Mapping[str, str]) -> list[str]:
    """Describe each family: by ``texts`` if it is there, else in the family's own words."""
    return [f"- *{family.name}*: {texts.get(family.name, family.about)}" for family in families]


def table(families: Iterable[FamilyResults]) -> list[str]:
    """A line for each row, with its first measure."""
    lines = ["| what | pykraft | Apache Kafka | ratio |", "|---|---:|---:|---:|"]
    for family in families:
        lines += [_line(family.name, row) for row in family.rows]
    return lines


def _line(family: str, row: Row) -> str:
    first = row.measures[0]
    ours, theirs = (with_range(first.spread(system), first.unit) for system in ("pykraft", "kafka"))
    ratio = first.ratio()
    cells = [
        f"{row.name}: {first.name}" if row.name.startswith(family) else f"{family}, {row.name}: {first.name}",
        ours,
        theirs,
        _MISSING if ratio is None else figure(ratio.median),
    ]
    return f"| {' | '.join(cells)} |"


def side_by_side(placed: Iterable[tuple[Row, tuple[str, str]]], also: str = "") -> list[str]:
    """Rows at the line and column that are given with them: our figure, the ratio, and that of ``also``."""
    cells: dict[str, dict[str, str]] = {}
    for row, (line, column) in placed:
        first = row.measures[0]
        ours = first.spread("pykraft")
        told = [it for it in row.measures if it.name in (first.name, also)]
        ratios = [figure(ratio.median) for it in told if (ratio := it.ratio()) is not None]
        text = _MISSING if ours is None else f"{figure(ours.median)} {first.unit}"
        cells.setdefault(line, {})[column] = text + (f" ({', '.join(ratios)})" if ratios else "")
    columns = list(dict.fromkeys(column for line in cells.values() for column in line))
    return [
        f"| what | {' | '.join(columns)} |",
        "|---|" + "---:|" * len(columns),
        *(
            f"| {line} | {' | '.join(found.get(column, _MISSING) for column in columns)} |"
            for line, found in cells.items()
        ),
    ]


def failures(families: Iterable[FamilyResults]) -> list[str]:
    lines: list[str] = []
    for family in families:
        for it in family.failures:
            error = " ".join(it.error.split()).replace("|", "/")
            lines += [f"Failed: {family.name}, {it.row} ({it.system}, round {it.round + 1}): {error}", ""]
    return lines


def replace_between_markers(page: str, text: str, begin: str, end: str) -> str:
    """The page with ``text`` between its two markers; ValueError unless it has both, once and in order."""
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError("the page does not have the two markers, each once")
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}"
