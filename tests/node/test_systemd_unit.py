"""``packaging/pykraft.service``, as far as it can be tried where systemd does not run."""

import re
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[2] / "packaging" / "pykraft.service"
HOW_TO = UNIT.parents[1] / "docs" / "how-to" / "systemd.md"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """Any unknown directive, and any value that is not allowed, is named."""
    program = tmp_path / "pykraft"
    program.touch(mode=0o755)
    copy = tmp_path / UNIT.name
    copy.write_text(re.sub(r"/opt/\S+", str(program), UNIT.read_text(encoding="utf-8")), encoding="utf-8")
    command = ("systemd-analyze", "verify", "--man=no", str(copy))
    verified = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


def test_paths_of_the_unit_are_those_of_its_instructions() -> None:
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text(encoding="utf-8"))
    service, text = unit["Service"], HOW_TO.read_text(encoding="utf-8")
    program, *_, properties = service["ExecStart"].split()
    for named in (program, properties, f"/var/lib/{service['StateDirectory']}", service["User"]):
        assert named in text, named
