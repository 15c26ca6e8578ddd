"""``python -m pykraft`` is the ``pykraft`` command."""

from pykraft.node.__main__ import main

if __name__ == "__main__":
    main()
