"""The comparison with Apache Kafka: its statistics and tables; no published figure is typed by hand."""

import re
from pathlib import Path

import pytest
from comparison.cluster import Cost
from comparison.plot import draw
from comparison.results import Failure, Figure, Measure, Results, Spread, load, save
from comparison.systems import Pykraft
from comparison.table import QUICK_WARNING, figure, render, replace_between_markers
from comparison.turn import Figures, Turn
from comparison.values import batch_of, record_of, values_of

from pykraft.kafka_protocol.records import iter_headers

BEGIN, END = "<!-- Begin -->", "<!-- End -->"
RUN = dict.fromkeys(
    ("date", "command", "pykraft", "kafka", "jvm_options", "machine", "client", "values"), "x"
)


def results_of(rows: dict[str, tuple[list[float], list[float]]], family: str = "raw") -> Results:
    """Two rounds of rows with one measure each: (pykraft's values, Kafka's)."""
    results = Results(RUN, rounds=2, quick=False)
    entered = results.family(family, "About it.")
    for row, values in rows.items():
        for system, of_rounds in zip(("pykraft", "kafka"), values, strict=True):
            for round_, value in enumerate(of_rounds):
                results.note(entered, row, system, round_, [Figure("CPU", "s/GB", value)])
    return results


def test_ratio_is_that_of_the_medians_with_the_range_of_the_rounds() -> None:
    measure = Measure("CPU", "s", {"pykraft": [1.0, 2.0, 6.0], "kafka": [4.0, 4.0, 5.0]})
    assert measure.spread("pykraft") == Spread(2, 1, 6)
    assert measure.ratio() == Spread(0.5, 0.25, 1.2)


def test_round_that_failed_on_one_system_is_left_out() -> None:
    measure = Measure("CPU", "s", {"pykraft": [1.0, None], "kafka": [2.0, 8.0]})
    assert measure.ratio() == Spread(0.2, 0.2, 0.5)
    assert Measure("CPU", "s", {"pykraft": [None], "kafka": [2.0]}).ratio() is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.01234, "0.012"), (0.5, "0.50"), (9.87, "9.87"), (45.67, "45.7"), (1234.5, "1,234")],
)
def test_figures_have_about_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert figure(value) == text


def test_table_shows_medians_ranges_and_ratios() -> None:
    text = render([results_of({"produce 1 KiB": ([1, 3], [4, 4])})])
    assert "| raw, produce 1 KiB: CPU | 2.00 s/GB (1.00\u20133.00) | 4.00 s/GB | 0.50 |" in text


def test_loads_of_librdkafka_are_side_by_side() -> None:
    rows = {f"{way} 1 KiB, lz4, default batches": ([1.0, 1.0], [4.0, 4.0]) for way in ("produce", "consume")}
    text = render([results_of(rows, "librdkafka")])
    assert "| what | produce, default batches | consume, default batches |" in text
    assert "| 1 KiB, lz4 | 1.00 s/GB (0.25) | 1.00 s/GB (0.25) |" in text


def test_summary_names_the_rows_that_are_not_cheaper() -> None:
    text = render([results_of({"a": ([1, 1], [4, 4]), "b": ([6, 6], [4, 4]), "c": ([2, 2], [4, 4])})])
    assert "Median ratio over 3 rows: **0.50**. Rows above 0.9: raw 1; the highest: raw: b (1.50)." in text


def test_row_that_failed_is_named_in_the_table() -> None:
    results = results_of({"a": ([1, 1], [])})
    results.families[0].failures.append(Failure("a", "kafka", 1, "Error: x|y\nz"))
    text = render([results])
    assert "| raw, a: CPU | 1.00 s/GB | - | - |" in text
    assert "Failed: raw, a (kafka, round 2): Error: x/y z" in text


def test_quick_run_says_that_its_figures_mean_nothing() -> None:
    results = results_of({"a": ([1, 1], [2, 2])})
    assert QUICK_WARNING not in render([results])
    results.quick = True
    assert QUICK_WARNING in render([results])


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    results = results_of({"a": ([1, 2], [3, 4])})
    results.families[0].failures.append(Failure("b", "kafka", 0, "Error"))
    results.families[0].seconds["pykraft"] = [1.5, 2]
    save([results], tmp_path / "results.json")
    assert load([tmp_path / "results.json"]) == [results]


def test_last_results_of_a_family_count(tmp_path: Path) -> None:
    old, new, other = (
        results_of({"a": ([1, 1], [1, 1])}),
        results_of({"a": ([2, 2], [2, 2])}),
        results_of({"a": ([3, 3], [3, 3])}, "start"),
    )
    save([old, other], tmp_path / "first.json")
    save([new], tmp_path / "second.json")
    assert load([tmp_path / "first.json", tmp_path / "second.json"]) == [other, new]


def test_only_what_is_between_the_markers_is_replaced() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert replace_between_markers(page, "new", BEGIN, END) == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    for wrong in ("no marker", BEGIN, f"{END} {BEGIN}", page + BEGIN):
        with pytest.raises(ValueError):
            replace_between_markers(wrong, "new", BEGIN, END)


def test_failed_row_is_noted_and_the_turn_goes_on(tmp_path: Path) -> None:
    results = Results(RUN, rounds=1, quick=True)
    family = results.family("raw", "About it.")
    turn = Turn(Pykraft(), 0, tmp_path, True, re.compile("good|bad"), results, family)

    def fail(figures: Figures) -> None:
        figures.note("CPU", "s", 1)
        raise TimeoutError("no answer")

    def succeed(figures: Figures) -> None:
        figures.per_gb(Cost(cpu_s=1, wall_s=2), 500_000_000)

    turn.row("bad", fail)
    turn.row("good", succeed)
    turn.row("not selected", fail)
    assert [(row.name, [one.values["pykraft"] for one in row.measures]) for row in family.rows] == [
        ("good", [[2], [4]])
    ]
    assert family.failures == [Failure("bad", "pykraft", 0, "TimeoutError: no answer")]


def test_values_vary_and_a_batch_is_not_larger_than_asked() -> None:
    values = values_of(1024)
    assert len(set(values)) == len(values)
    assert 950 < sum(map(len, values)) / len(values) < 1100
    for size in (300, 1 << 10, 16 << 10, 1 << 20):
        batch, records = batch_of(size)
        assert size * 0.9 < len(batch) <= size
        assert sum(header.record_count for _, header in iter_headers(batch)) == records
    assert len(record_of(1024)) - len(record_of(1000)) == 24


def test_plot_is_drawn_or_skipped(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    assert draw([results_of({"a": ([1, 1], [2, 2])})], path) == path.exists()
