"""One fault run from seed to verdict: self-test, cluster, workload, nemesis, healing, last read, checkers.

Exit status: 0 clean, 1 an anomaly, 3 clean but too quiet to count, 4 the run could not be carried out or
broke off, 130 interrupted. The seed comes first in the output; it fixes the plan of the faults and the
producers' choices, though not the timing of real processes.
"""

import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from pykraft.jepsen_like.faults.checkers.self_test.plants import run_self_test
from pykraft.jepsen_like.faults.clients.java import COVERED
from pykraft.jepsen_like.faults.history import HistoryError
from pykraft.jepsen_like.faults.plain_text import PlainConsole
from pykraft.jepsen_like.faults.reports.report import (
    EXIT_ANOMALY,
    EXIT_CLEAN,
    EXIT_COULD_NOT_RUN,
    EXIT_DOES_NOT_COUNT,
    EXIT_INTERRUPTED,
    Result,
    print_result,
    print_runs,
    print_start,
)
from pykraft.jepsen_like.faults.runs.conclusion import Check, conclude
from pykraft.jepsen_like.faults.runs.foreign_run import play_on_foreign_cluster
from pykraft.jepsen_like.faults.runs.interruption import OrderlyTermination
from pykraft.jepsen_like.faults.runs.process_run import play_on_processes
from pykraft.jepsen_like.faults.runs.run_config import RunConfig, RunError
from pykraft.jepsen_like.faults.workloads.registry import WORKLOADS
from pykraft.testing.processes.keeper import end_leftovers


def run(config: RunConfig, console: Console | None = None, check: Check | None = None) -> Result:
    """One run; ``check`` examines its history instead. :class:`RunError` if it cannot be carried out."""
    _refuse_impossible(config)
    console = console or PlainConsole()
    print_start(console, config.workload, config.seed, config.time_limit_s, run_self_test())
    directory = new_directory(config.out_dir, f"{config.workload}-{config.seed}")
    for pid in end_leftovers(config.out_dir):
        console.print(f"ended process {pid}, which an earlier run had left behind")
    play = play_on_processes if config.bootstrap_servers is None else play_on_foreign_cluster
    tidy_up = play(config, directory, console)
    result = conclude(directory, check)
    print_result(console, result)
    tidy_up(bool(result.findings))
    return result


def _refuse_impossible(config: RunConfig) -> None:
    if config.workload not in WORKLOADS:
        raise RunError(f"no workload {config.workload!r}; there are: {', '.join(WORKLOADS)}")
    if config.client == "java" and config.workload not in COVERED:
        raise RunError(
            f"the Java clients do not cover the workload {config.workload}, but {', '.join(sorted(COVERED))}"
        )
    if "," in str(config.out_dir.absolute()):
        raise RunError(f"log.dirs would be cut at the comma in {config.out_dir}")


def main(config: RunConfig, runs: int = 1, check: Check | None = None) -> int:
    """``runs`` runs with successive seeds; the worst exit status.

    Stops at the first run that could not be carried out or was interrupted; goes on after an anomaly.
    """
    console = PlainConsole()
    results: list[Result] = []

    def play(seed: int) -> int:
        result = run(replace(config, seed=seed), console, check)
        results.append(result)
        if result.ended_early and not result.findings:
            return EXIT_INTERRUPTED
        return result.exit_status

    statuses = set()
    with OrderlyTermination():
        for seed in range(config.seed, config.seed + runs):
            statuses.add(guarded(partial(play, seed), console, f"seed {seed}: "))
            ended_early = any(result.ended_early for result in results)
            if ended_early or statuses & {EXIT_COULD_NOT_RUN, EXIT_INTERRUPTED}:
                break
    if len(results) > 1:
        print_runs(console, results)
    worst_first = (EXIT_ANOMALY, EXIT_COULD_NOT_RUN, EXIT_INTERRUPTED, EXIT_DOES_NOT_COUNT, EXIT_CLEAN)
    return next(status for status in worst_first if status in statuses)


def guarded(work: Callable[[], int], console: PlainConsole, name: str = "") -> int:
    """The exit status of ``work``. An unforeseen error is no anomaly: it is shown, and nothing is known."""
    try:
        return work()
    except KeyboardInterrupt:
        console.say(f"{name}interrupted")
        return EXIT_INTERRUPTED
    except (RunError, HistoryError) as error:
        console.say(f"{name}{error}")
    except Exception as error:
        console.say(traceback.format_exc())
        console.say(f"{name}broke off: {type(error).__name__}: {error}")
    return EXIT_COULD_NOT_RUN


def new_directory(out_dir: Path, name: str) -> Path:
    """A new directory: earlier runs with the seed keep theirs. :class:`RunError` if it cannot be made."""
    for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
        directory = out_dir / f"{name}{suffix}"
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise RunError(f"{directory} cannot be made: {error.strerror}") from error
        return directory
    raise RunError(f"{out_dir} holds too many runs named {name}")
