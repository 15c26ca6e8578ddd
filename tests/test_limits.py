"""A test that exceeds a limit fails, shows what was running, and leaves the worker alive."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

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


@pytest.fixture
def run_limited(tmp_path: Path) -> Callable[..., str]:
    """Runs the tests above that a ``-k`` expression selects, under these limits; returns the output."""
    conftest = (Path(__file__).parent / "conftest.py").read_text("utf-8")
    (tmp_path / "conftest.py").write_text(conftest.replace("_AGAIN_S = 30.0", "_AGAIN_S = 0.5"), "utf-8")
    (tmp_path / "test_limited.py").write_text(LIMITED, "utf-8")

    def run(chosen: str, *limits: str) -> str:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            "/dev/null",
            "-k",
            chosen,
        ]
        options = [word for limit in limits for word in ("-o", limit)]
        done = subprocess.run(
            [*command, "--rootdir", str(tmp_path), *options, str(tmp_path)],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    return run


def test_limit_of_processor_time_fails_one_test_and_the_others_run(run_limited: Callable[..., str]) -> None:
    said = run_limited("not hangs", "cpu_limit_s=0.3")
    assert "2 failed, 2 passed" in said, said
    assert "test_busy: more than 0.3 s of processor time" in said
    assert "in spin_for_ever" in said
    assert "test_busy_in_a_callback: more than" in said and "--- task sleeper" in said


def test_limit_of_real_time_ends_what_hangs_and_says_what_was_running(
    run_limited: Callable[..., str],
) -> None:
    said = run_limited("hangs", "wall_limit_s=2")
    assert "1 failed" in said, said
    assert "test_hangs: more than 2 s of real time" in said
    assert "threading.Event().wait()" in said and "import time; time.sleep(60)" in said
