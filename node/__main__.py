"""The ``pykraft`` command."""

from __future__ import annotations

import os

from pykraft.node.cli.root import cli


def main() -> None:
    """Entry point of the console script."""
    # gRPC would write again to standard error what is reported anyway.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    cli(prog_name="pykraft")


if __name__ == "__main__":
    main()
