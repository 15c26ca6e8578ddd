"""What ``pykraft dev`` prints of a cluster that is ready. Colours are left out where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from pykraft.node.cli.dev.state import DevState

BOOTSTRAP_VARIABLE = "PYKRAFT_BOOTSTRAP_SERVER"


def summary(state: DevState, topics: Sequence[str] = (), how_to_stop: str = "") -> Iterator[str]:
    """The lines."""
    if len(state.nodes) > 1 and len({node.process_id for node in state.nodes}) > 1:
        for node in state.nodes:
            yield f"{_name(f'Node {node.id}')}: {node.address}, process {node.process_id}"
    yield f"{_name('Bootstrap servers')}: {click.style(state.bootstrap_servers, fg='green')}"
    yield f"{_name('Bootstrap controllers')}: {state.bootstrap_controllers}"
    consoles = [f"http://{node.http}/" for node in state.nodes if node.http is not None]
    if consoles:
        yield f"{_name('Console')}: {click.style(' '.join(consoles), fg='cyan')} (metrics at /metrics)"
    for said in topics:
        yield f"{_name('Topic')} {said}"
    yield f"export {BOOTSTRAP_VARIABLE}={state.bootstrap_servers}"
    kept = "removed when it stops" if state.is_temporary else "kept"
    yield f"{_name('Data')}: {state.data_dir}. It is {kept}. {how_to_stop}".rstrip()


def _name(text: str) -> str:
    return click.style(text, bold=True)
