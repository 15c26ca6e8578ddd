"""Where control groups are found, with both versions of the kernel's interface."""

from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.surroundings.cgroup import CgroupError, Cgroups, find_hierarchies


def found_in(directory: Path, mounts: str, own: str) -> tuple[Path, ...]:
    (directory / "mounts").write_text(mounts.replace("TOP", str(directory)))
    (directory / "cgroup").write_text(own)
    return find_hierarchies(directory / "mounts", directory / "cgroup").directories


V1 = "cgroup TOP/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup TOP/memory cgroup rw,memory 0 0\n"
V2 = "cgroup2 TOP/unified cgroup2 rw 0 0\n"


def test_version_1_has_one_below_the_runners_own_for_each_controller(tmp_path: Path) -> None:
    (tmp_path / "cpu" / "a").mkdir(parents=True)
    (tmp_path / "memory").mkdir()
    own = "5:cpu,cpuacct:/a\n4:memory:/not/seen/here\n0::/b\n"
    assert found_in(tmp_path, V1 + V2, own) == (tmp_path / "cpu" / "a", tmp_path / "memory")


def test_version_2_has_one(tmp_path: Path) -> None:
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.controllers").write_text("cpuset cpu io memory\n")
    assert found_in(tmp_path, V2, "0::/user.slice\n") == (tmp_path / "unified",)


@pytest.mark.parametrize("mounts", ["", V2, V1.splitlines()[0] + "\n"])
def test_without_both_controllers_there_are_none(tmp_path: Path, mounts: str) -> None:
    (tmp_path / "unified").mkdir()
    (tmp_path / "cpu").mkdir()
    with pytest.raises(CgroupError, match="no control groups"):
        found_in(tmp_path, mounts, "0::/\n")


def test_limits_of_version_2_are_written_as_the_kernel_reads_them(tmp_path: Path) -> None:
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.controllers").write_text("cpu memory\n")
    found_in(tmp_path, V2, "0::/\n")
    cgroups = Cgroups(find_hierarchies(tmp_path / "mounts", tmp_path / "cgroup"), [1])
    cgroups.make()
    (group,) = tmp_path.glob("unified/pykraft-jepsen-*/node-1")
    (group / "memory.stat").write_text("anon 4096\nfile 10\n")
    assert cgroups.resident_bytes(1) == 4096
    for share, limit_bytes, written in (
        (0.05, 1 << 20, ("5000 100000", "1048576")),
        (None, None, ("max 100000", "max")),
    ):
        cgroups.limit_cpu(1, share)
        cgroups.limit_memory(1, limit_bytes)
        assert ((group / "cpu.max").read_text(), (group / "memory.max").read_text()) == written
    assert "cgroup.procs" in " ".join(cgroups.prefix(1))
