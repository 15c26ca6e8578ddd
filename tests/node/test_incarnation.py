"""A process leaves in its directories the proof of its death, which is secret until then."""

from pathlib import Path
from random import Random

from pykraft.metadata_log.incarnations import incarnation_id_of, proves_death
from pykraft.node.incarnation import Incarnation, draw_uuid, enter_directories
from pykraft.runtime.directory_lock import DirectoryLock

draw = Random(1).randbytes


def start(tmp_path: Path) -> Incarnation:
    (tmp_path / "boot").write_text("boot-1\n")
    lock = DirectoryLock(str(tmp_path), str(tmp_path / "boot"))
    try:
        return enter_directories([lock], draw_uuid(draw))
    finally:
        lock.release()


def test_next_process_on_the_directory_can_prove_its_predecessors_dead(tmp_path: Path) -> None:
    first, second, third = (start(tmp_path) for _ in range(3))
    assert not first.dead_secrets
    assert proves_death(first.id, second.dead_secrets)
    assert proves_death(first.id, third.dead_secrets) and proves_death(second.id, third.dead_secrets)
    assert not proves_death(third.id, third.dead_secrets)


def test_public_data_of_a_process_is_not_its_secret(tmp_path: Path) -> None:
    process = start(tmp_path)
    assert process.id == incarnation_id_of(process.secret) != process.secret
    assert not proves_death(process.id, [process.id])
    assert process.secret.hex() not in repr(process) and str(process.secret) not in repr(process)
