"""The ``pykraft`` command."""

from __future__ import annotations

from pykraft.node.cli.root import cli


def main() -> None:
    """Entry point of the console script."""
    cli(prog_name="pykraft")


if __name__ == "__main__":
    main()
