"""``python -m pykraft.jepsen_like.simulation.fuzz --seed 1 --requests 20000``: fuzz a node.

The requests come in chapters, each to a new node: three in four with twenty topics, the others with a
thousand. Findings go to the standard output as they are made, each behind the name of its chapter, which
``--chapter`` plays alone. The exit code is 1 if there was one.
"""

import argparse
import sys
from time import process_time

from pykraft.jepsen_like.simulation.fuzz.chapter import play_chapter
from pykraft.jepsen_like.simulation.fuzz.tally import Tally

_IN_A_CHAPTER = 2_000


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    whole, began_s = Tally(), process_time()
    chapters = -(-options.requests // _IN_A_CHAPTER)
    for number in range(chapters) if options.chapter is None else (options.chapter,):
        requests = min(_IN_A_CHAPTER, options.requests - number * _IN_A_CHAPTER)
        tally = play_chapter(f"{options.seed}/{number}", requests, 1_000 if number % 4 == 3 else 20)
        for finding in tally.findings:
            print(finding, flush=True)
        whole.add(tally)
        progress = f"{whole.requests:,} requests, {len(whole.findings)} findings"
        print(f"{progress}, {process_time() - began_s:.0f} s of processor time", file=sys.stderr)
    for ms, request in whole.passing:
        print(f"once, and not again: {request} {ms:.1f} ms", file=sys.stderr)
    print(
        f"{whole.requests:,} requests: {whole.answered:,} answers, {whole.closed:,} closed connections; "
        f"longest turn {whole.longest_ms:.1f} ms and full collection {whole.longest_collection_ms:.1f} ms, "
        f"memory at most {whole.most_memory:.2f} of what is allowed ({whole.measured:,} measured); "
        f"{len(whole.findings)} findings"
    )
    return 1 if whole.findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pykraft.jepsen_like.simulation.fuzz")
    parser.add_argument("--seed", default="0", help="any text")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--chapter", type=int, help="play this chapter of the run alone")
    return parser


if __name__ == "__main__":
    sys.exit(main())
