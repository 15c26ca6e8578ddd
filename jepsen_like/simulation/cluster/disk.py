"""A memory disk that can kill a process in the middle of its writes."""

from collections.abc import Callable, Iterator

from pykraft.broker.logs.log_loading import parse_future_name
from pykraft.broker.logs.offline_logs import read_topic_id
from pykraft.kafka_protocol.ids import Uuid
from pykraft.log_store.interface import METADATA_LOG_DIRECTORY
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.simulated.processes import ProcessKilledError

WRITING = ("append", "flush", "rename", "truncate", "flush_dir", "remove", "write_atomic")


class CrashPointDisk(MemoryDisk):
    """One machine's disk; it outlives its processes. ``was_damaged``: a fault was injected here.

    ``on_death`` is called where a process is to die in a call, with whether its machine loses power, too.
    """

    def __init__(self, on_death: Callable[[bool], None]) -> None:
        super().__init__(recorded_calls=0)
        self._on_death = on_death
        self._calls_left = 0
        self._path_part = ""
        self._power_loss = False
        self.was_damaged = False
        self.damaged_logs: set[str] = set()
        """Names of logs, as ``topic-0``, whose files were damaged on purpose: they may be moved meanwhile."""
        self.writes = 0

    def die_in_call(self, number: int, path_part: str, *, power_loss: bool) -> None:
        """The ``number``-th writing call from now on whose path holds ``path_part`` is the last."""
        self._calls_left, self._path_part, self._power_loss = number, path_part, power_loss

    def flushed_logs(self) -> list[tuple[str, int]]:
        """Paths of the partitions' files with records, and how many bytes of each are flushed."""
        found = []
        for path in self._files():
            directory, _, name = path.rpartition("/")
            inode = self._file(path)
            in_use = directory.rpartition("-")[2].isdigit() and METADATA_LOG_DIRECTORY not in directory
            if in_use and name.endswith(".log") and inode.durable_bytes:
                found.append((path, inode.durable_bytes))
        return found

    def _files(self, directory: str = "") -> Iterator[str]:
        for name in sorted(self._directory(directory).entries):
            path = f"{directory}/{name}"
            if self.is_broken(path):
                continue
            if self.is_dir(path):
                yield from self._files(path)
            else:
                yield path

    def replica_of(self, path: str) -> tuple[Uuid, int] | None:
        """Topic id and index of the partition whose log a file belongs to; None if no file names it."""
        directory = path.rpartition("/")[0]
        topic_id = read_topic_id(self, directory)
        return None if topic_id is None else (topic_id, int(directory.rpartition("-")[2]))

    def repair(self) -> None:
        """Let flushes succeed again."""
        self._root.repair()

    def live_on(self) -> None:
        """No fault that was injected is still to come."""
        self._calls_left = 0
        self._faults.clear()

    def inject(self, operation: str, error_number: int, *, path_part: str = "", times: int = 1) -> None:
        self.was_damaged = True
        super().inject(operation, error_number, path_part=path_part, times=times)

    def log_sizes(self, log_dir: str) -> dict[tuple[str, int], int]:
        """The partitions whose logs are in a directory, or are being copied there, with their bytes."""
        found = {}
        for name in self.list(log_dir):
            copy = parse_future_name(name)
            partition = None if copy is None else copy[0]
            topic, _, number = name.rpartition("-")
            if partition is None and number.isdigit() and name != METADATA_LOG_DIRECTORY:
                partition = topic, int(number)
            if partition is not None:
                files = (f"{log_dir}/{name}/{file}" for file in self.list(f"{log_dir}/{name}"))
                found[partition] = sum(len(self._file(file).data) for file in files if file.endswith(".log"))
        return found

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        self.damaged_logs.add(path.split("/")[-2])
        super().flip_bit(path, position, bit)

    def make_unreadable(self, path: str, position: int = 0, length_bytes: int = 512) -> None:
        self.damaged_logs.add(path.split("/")[-2])
        super().make_unreadable(path, position, length_bytes)

    def enter(self, operation: str, path: str, target: str = "") -> int | None:
        if operation in WRITING:
            self.writes += 1
            if self._calls_left and self._path_part in path + target:
                self._calls_left -= 1
                if not self._calls_left:
                    self._on_death(self._power_loss)
                    raise ProcessKilledError
        return super().enter(operation, path, target)
