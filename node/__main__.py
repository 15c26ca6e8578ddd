"""The ``pykraft`` command."""

from __future__ import annotations

import os
import sys

from pykraft.node.cli.shared.lazy import import_late


def main() -> None:
    """Entry point of the console script."""
    # gRPC would write again to standard error what is reported anyway.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if sys.argv[1:3] == ["server", "start"]:
        code = import_late("pykraft.node.cli.plain_start").run_plainly(sys.argv[3:])
        if code is not None:
            sys.exit(code)
    import_late("pykraft.node.cli.root").cli(prog_name="pykraft")


if __name__ == "__main__":
    main()
