"""A test that passes a limit fails, says what was running, and leaves the worker alive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIMITED = """
import asyncio, subprocess, sys, threading, time

def spin_for_ever():
    while True:
        pass

def test_busy():
    spin_for_ever()

def test_busy_in_a_callback():
    async def main():
        asyncio.get_running_loop().call_soon(spin_for_ever)
        await asyncio.get_running_loop().create_task(asyncio.sleep(3600), name="sleeper")
    asyncio.run(main())

def test_hangs():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        threading.Event().wait()
    finally:
        child.kill()
        child.wait()

def test_waits_beside_others_without_using_the_processor():
    time.sleep(0.7)

def test_passes():
    pass
"""


def test_limit_fails_one_test_with_what_was_running_and_the_others_go_on(tmp_path: Path) -> None:
    conftest = (
        (Path(__file__).parent / "conftest.py")
        .read_text("utf-8")
        .replace("_AGAIN_S = 30.0", "_AGAIN_S = 0.5")
    )
    (tmp_path / "conftest.py").write_text(conftest, "utf-8")
    (tmp_path / "test_limited.py").write_text(LIMITED, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    limits = ["-o", "cpu_limit_s=0.3", "-o", "wall_limit_s=2"]
    run = subprocess.run(
        [*command, "--rootdir", str(tmp_path), *limits, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    said = run.stdout
    assert "3 failed, 2 passed" in said, said + run.stderr
    assert "test_busy: more than 0.3 s of processor time" in said
    assert "in spin_for_ever" in said
    assert "test_busy_in_a_callback: more than" in said and "--- task sleeper" in said
    assert "test_hangs: more than 2 s of real time" in said
    assert "threading.Event().wait()" in said and "import time; time.sleep(60)" in said
