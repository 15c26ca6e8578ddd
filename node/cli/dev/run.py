"""The cluster of ``pykraft dev`` while it runs, in this process or in one for each node."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import click

from pykraft.configuration.keys import ConfigError
from pykraft.kafka_client.results import NewTopic
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.node.cli.dev.state import DevNode, DevState, Home, new_temporary_path
from pykraft.node.cli.dev.topics import create_topics
from pykraft.node.cli.shared.lazy import import_late
from pykraft.node.cli.shared.logging_setup import LEVEL_VARIABLE, set_up_logging
from pykraft.node.dev_cluster import DevCluster, prepare_dev_cluster
from pykraft.node.incarnation import draw_uuid
from pykraft.node.os_errors import describe
from pykraft.node.supervisor import interpreter_command, supervise
from pykraft.runtime.address import Address, is_loopback
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.directory_lock import DirectoryInUseError
from pykraft.runtime.os_disk import OsDisk

BOOTSTRAP_VARIABLE = "PYKRAFT_BOOTSTRAP_SERVER"


def summary(state: DevState, topics: Sequence[str] = (), how_to_stop: str = "") -> Iterator[str]:
    """Describe a cluster that is ready, line by line."""
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


EXIT_FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class DevOptions:
    """``http_port`` None: no HTTP. ``home``: of a detached cluster; ``ready_fd`` learns when it is ready."""

    nodes: int
    data_dir: str | None
    host: str
    port: int
    http_port: int | None
    topics: Sequence[NewTopic]
    overrides: Mapping[str, str]
    one_process: bool
    log_level: str
    home: Home | None
    ready_fd: int | None

    def to_arguments(self) -> list[str]:
        """Return the options as arguments for the command line of a detached cluster."""
        named = {"--nodes": self.nodes, "--host": self.host, "--port": self.port}
        arguments = [text for option, value in named.items() for text in (option, str(value))]
        arguments += ["--no-http"] if self.http_port is None else ["--http-port", str(self.http_port)]
        arguments += [] if self.data_dir is None else ["--data-dir", self.data_dir]
        arguments += ["--one-process"] if self.one_process else []
        for topic in self.topics:
            replicas = "" if topic.replication_factor is None else f":{topic.replication_factor}"
            arguments += ["--topics", f"{topic.name}:{topic.num_partitions}{replicas}"]
        for key, value in self.overrides.items():
            arguments += ["--override", f"{key}={value}"]
        return arguments


def run_cluster(options: DevOptions) -> int:
    """Run it until it is stopped; returns the exit code."""
    set_up_logging(options.log_level)
    with ExitStack() as ending:
        if options.home is not None:
            try:
                ending.callback(options.home.hold().release)
            except DirectoryInUseError:
                raise click.ClickException(f"the cluster {options.home.name} is already running") from None
            ending.callback(options.home.forget)
        directory, remove = ending.enter_context(_directory(options.data_dir, options.home))
        cluster = _prepare(directory, options)
        told = _Announcement(options, cluster, directory)
        if options.nodes == 1 or options.one_process:
            code = _run_here(cluster, told, remove)
        else:
            code = _run_processes(cluster, directory, options.log_level, told)
    return code or told.code


@contextmanager
def _directory(given: str | None, home: Home | None) -> Iterator[tuple[str, Callable[[], None]]]:
    """The data directory, and a function to call if this process ends without leaving the context."""
    if given is not None:
        _refuse_foreign_files(Path(given))
        yield given, lambda: None
        return
    # Before the event loop handles these signals, they would end the process without the cleanup.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    if home is not None:
        directory = home.make_temporary()
    else:
        directory = new_temporary_path()
        directory.mkdir(mode=0o700)
    remove = partial(shutil.rmtree, directory, ignore_errors=True)
    try:
        yield str(directory), remove
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        remove()


def _refuse_foreign_files(directory: Path) -> None:
    """A cluster does not move in among other files, which its user might later remove with it."""
    names = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    if names and not any(name.startswith("node-") for name in names):
        raise ConfigError(
            f"{directory} holds other files ({', '.join(sorted(names)[:3])}): give --data-dir a new directory,"
            " or that of a cluster"
        )


def _prepare(directory: str, options: DevOptions) -> DevCluster:
    now_ms, new_uuid = SystemClock().wall_ms(), partial(draw_uuid, os.urandom)
    # Somebody who develops on this machine may as well write.
    console = {"pykraft.http.console": "produce"} if is_loopback(options.host) else {}
    try:
        return prepare_dev_cluster(
            OsDisk(),
            directory,
            options.nodes,
            new_uuid,
            now_ms,
            host=options.host,
            port=options.port,
            http_port=options.http_port,
            overrides={**console, **options.overrides},
        )
    except OSError as error:
        raise ConfigError(f"cannot prepare {describe(error, directory)}") from None


def _run_here(cluster: DevCluster, told: _Announcement, remove: Callable[[], None]) -> int:
    run_nodes: Callable[..., int] = import_late("pykraft.node.run").run_nodes
    process_ids = dict.fromkeys((config.node_id for config in cluster.configs), os.getpid())
    return run_nodes(cluster.configs, lambda _: told.begin(process_ids), on_abandon=remove)


def _run_processes(cluster: DevCluster, directory: str, log_level: str, told: _Announcement) -> int:
    commands = {}
    for config, properties in zip(cluster.configs, cluster.properties, strict=True):
        file = Path(directory, f"node-{config.node_id}.properties")
        file.write_text(f"# Written by every `pykraft dev`.\n{properties}", encoding="utf-8")
        commands[config.node_id] = partial(_server_command, str(file))
    environment = os.environ | {LEVEL_VARIABLE: log_level}
    return supervise(commands, environment, told.begin, lambda text: click.echo(text, err=True))


def _server_command(file: str, supervisor_fd: int) -> Sequence[str]:
    arguments = ("server", "start", file, "--supervisor-fd", str(supervisor_fd))
    return [*interpreter_command(), "-m", "pykraft.node", *arguments]


class _Announcement:
    """Creates the topics and tells that the cluster is ready; beside the event loop, which serves meanwhile.

    ``code``: what the process exits with for its sake.
    """

    def __init__(self, options: DevOptions, cluster: DevCluster, directory: str) -> None:
        self._options = options
        self._cluster = cluster
        self._directory = directory
        self.code = 0

    def begin(self, process_ids: Mapping[int, int]) -> None:
        """``process_ids`` by node."""
        state = self._state(process_ids)
        if self._options.topics:
            threading.Thread(target=self._tell, args=[state], name="dev-topics", daemon=True).start()
        else:
            self._tell(state)

    def _state(self, process_ids: Mapping[int, int]) -> DevState:
        nodes = []
        for config in self._cluster.configs:
            listener = config.broker_listeners[0]
            http = config.http_listener
            nodes.append(
                DevNode(
                    config.node_id,
                    str(Address(listener.host, listener.port)),
                    process_ids[config.node_id],
                    None if http is None else str(http),
                )
            )
        return DevState(
            self._cluster.bootstrap_servers,
            self._cluster.bootstrap_controllers,
            tuple(nodes),
            self._directory,
            self._options.data_dir is None,
            os.getpid(),
            SystemClock().wall_ms(),
        )

    def _tell(self, state: DevState) -> None:
        options = self._options
        try:
            topics = create_topics(state.bootstrap_servers, options.topics) if options.topics else []
        except KafkaError as error:
            click.echo(f"Error: {error.message}", err=True)
            self.code = EXIT_FAILED
            os.kill(os.getpid(), signal.SIGTERM)
            return
        for line in summary(state, topics, "Ctrl-C stops the cluster." if options.home is None else ""):
            click.echo(line)
        if options.home is not None:
            options.home.write(state)
        if options.ready_fd is not None:
            os.write(options.ready_fd, b"\n")
            os.close(options.ready_fd)
