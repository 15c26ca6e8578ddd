"""``make compiled`` and ``make interpreted``: the library beside the package, in a clone."""

from __future__ import annotations

import argparse
import sys
import time

from compiling import library, sources
from compiling.c_sources import make_c


def main() -> None:
    parser = argparse.ArgumentParser(prog="compiling", description=__doc__)
    parser.add_argument("--remove", action="store_true", help="go back to the sources")
    arguments = parser.parse_args()
    library.remove()
    if arguments.remove:
        return
    begin_s = time.monotonic()
    try:
        compiled = sources.compiled()
        library.compile_c(*make_c(compiled))
    except sources.UncompilableError as error:
        sys.exit(str(error))
    library.write_manifest(compiled, in_place=True)
    megabytes = library.path().stat().st_size / 1e6
    print(f"{len(compiled)} modules compiled in {time.monotonic() - begin_s:.0f} s, {megabytes:.1f} MB")


if __name__ == "__main__":
    main()
