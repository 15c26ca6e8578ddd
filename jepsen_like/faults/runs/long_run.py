"""Fault runs for hours: ``python -m pykraft.jepsen_like.faults.runs.long_run --hours 8 --seed 1``.

Every run has a seed of its own, from which everything else about it is drawn: workload, tier, nemeses,
length, clients. It is a process of its own, so that nothing of one run is left in the next, and one that
hangs is ended and counts as an anomaly. A line of ``results.jsonl`` for each run says how it ended; a run
that is clean, or does not count, leaves nothing else. ``--table`` only prints what all lines together say, of
several directories with several ``--out``. Exit status: 1 an anomaly, 4 none but a run broke off, 130 none
but Ctrl-C.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from pykraft.jepsen_like.faults.nemeses.choice import KINDS
from pykraft.jepsen_like.faults.plain_text import plain
from pykraft.jepsen_like.faults.reports.report import (
    EXIT_ANOMALY,
    EXIT_CLEAN,
    EXIT_COULD_NOT_RUN,
    EXIT_INTERRUPTED,
)
from pykraft.jepsen_like.faults.reports.tally_table import BROKE_OFF, DID_NOT_END, ending, table
from pykraft.jepsen_like.faults.run_files import SUMMARY
from pykraft.jepsen_like.faults.runs.interruption import OrderlyTermination
from pykraft.jepsen_like.faults.runs.runner import new_directory
from pykraft.jepsen_like.faults.surroundings.tiers import TIERS
from pykraft.testing.processes.systems import cli

RESULTS: Final = "results.jsonl"
OUTPUT: Final = "output.txt"
WORKLOADS: Final[Mapping[str, float]] = {
    "append": 4.0,
    "append-flushed": 1.0,
    "changes": 1.0,
    "compacted": 1.5,
    "groups": 2.0,
    "moves": 1.0,
    "registers": 1.0,
    "transactions": 2.0,
    "transactions-flushed": 2.0,
}
MIXED_SHARE: Final = 0.6
OWN_CLIENT_SHARE: Final = 0.15
FIVE_NODES_SHARE: Final = 0.1
SHORTEST_S, LONGEST_S = 60, 300
OVERHEAD_S: Final = 900
"""How much longer than its faults a run may take, with its start, its end and its check."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One run, drawn from its seed."""

    seed: int
    workload: str
    tier: str
    nemesis: str
    time_limit_s: int
    nodes: int
    client: str

    def command(self, out_dir: Path) -> list[str]:
        options = {name.replace("time_limit_s", "time-limit"): value for name, value in asdict(self).items()}
        return cli("jepsen", "run", f"--out={out_dir}", *(f"--{name}={options[name]}" for name in options))


def choose_run(seed: int, tiers: Sequence[str]) -> Choice:
    """A pure function of its arguments."""
    rng = random.Random(seed)
    families = sorted({kind.family for kind in KINDS.values()})
    chosen = rng.sample(families, min(rng.choice((1, 2, 3)), len(families)))
    return Choice(
        seed,
        rng.choices(list(WORKLOADS), list(WORKLOADS.values()))[0],
        rng.choice(tiers),
        "mixed" if rng.random() < MIXED_SHARE else ",".join(dict.fromkeys(["kill", *chosen])),
        rng.randrange(SHORTEST_S, LONGEST_S, 20),
        5 if rng.random() < FIVE_NODES_SHARE else 3,
        "own" if rng.random() < OWN_CLIENT_SHARE else "confluent",
    )


def play(choice: Choice, out_dir: Path) -> dict[str, Any]:
    """Carry out one run; its line. All of it is removed unless it shows an anomaly or has no verdict."""
    directory = new_directory(out_dir, f"run-{choice.seed}")
    begun_s = time.monotonic()
    status: int | None = None
    with (directory / OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            choice.command(directory), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            status = process.wait(choice.time_limit_s + OVERHEAD_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()  # its keeper ends its nodes
            process.wait()
    summaries = list(directory.glob(f"*/{SUMMARY}"))
    summary = msgspec.json.decode(summaries[0].read_bytes()) if summaries else None
    if status not in (None, EXIT_ANOMALY, EXIT_COULD_NOT_RUN) and summary is not None:
        shutil.rmtree(directory)
    return {
        **asdict(choice),
        "status": status,
        "took_s": round(time.monotonic() - begun_s, 1),
        "directory": directory.name,
        "summary": summary,
    }


def run(hours: float, first_seed: int, tiers: Sequence[str], out_dir: Path) -> None:
    """Runs one after the other until the hours are over, each begun before their end."""
    out_dir.mkdir(parents=True, exist_ok=True)
    end_s = time.monotonic() + hours * 3600
    seed = first_seed
    with (out_dir / RESULTS).open("ab") as file:
        while time.monotonic() < end_s:
            choice = choose_run(seed, tiers)
            what = f"{choice.workload}, {choice.tier}, {choice.nemesis}, {choice.time_limit_s} s"
            print(f"{seed}: {what}", flush=True)
            result = play(choice, out_dir)
            file.write(msgspec.json.encode(result) + b"\n")
            file.flush()
            print(f"{seed}: status {result['status']}, {result['took_s']} s", flush=True)
            seed += 1


def read_results(out_dir: Path) -> list[dict[str, Any]]:
    """Results of finished runs; ``reason``: a last line, if there is no summary. OSError, ValueError."""
    results = []
    path = out_dir / RESULTS
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):  # it is being written
            continue
        try:
            result = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
        if result["summary"] is None:
            directory = out_dir / result.get("directory", f"run-{result['seed']}")
            result["reason"] = _last_words(directory / OUTPUT)
        results.append(result)
    return results


def _last_words(output: Path) -> str | None:
    if not output.is_file():
        return None
    lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return plain(lines[-1]) if lines else None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; each next one has the next")
    parser.add_argument(
        "--tier",
        action="append",
        choices=sorted(TIERS),
        help="may be repeated; portable, and root if this is",
    )
    parser.add_argument("--out", action="append", type=Path, help="out/jepsen-long; with --table several")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    was_interrupted = False
    out_dirs = options.out or [Path("out/jepsen-long")]
    if not options.table:
        if len(out_dirs) > 1:
            parser.error("several --out are for --table")
        tiers = options.tier or (["portable", "root"] if os.geteuid() == 0 else ["portable"])
        try:
            with OrderlyTermination():
                run(options.hours, options.seed, tiers, out_dirs[0])
        except KeyboardInterrupt:
            was_interrupted = True
            print("interrupted", flush=True)
    try:
        results = [result for out_dir in out_dirs for result in read_results(out_dir)]
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(table(results))
    endings = set(map(ending, results))
    if endings & {"anomaly", DID_NOT_END}:
        return EXIT_ANOMALY
    if BROKE_OFF in endings:
        return EXIT_COULD_NOT_RUN
    return EXIT_INTERRUPTED if was_interrupted else EXIT_CLEAN


if __name__ == "__main__":
    sys.exit(main())
