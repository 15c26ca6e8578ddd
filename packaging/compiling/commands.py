"""``pip install .`` and ``pip wheel .`` install the compiled library, too.

With ``PYKRAFT_INTERPRETED=1``, and where there is no C compiler, they say so in a line and install the
sources alone. An editable installation is a clone that is worked on: ``make compiled`` compiles there.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # it is loaded by its path


def why_not() -> str | None:
    """Why nothing is compiled; None if it is."""
    if os.environ.get("PYKRAFT_INTERPRETED", "") not in ("", "0"):
        return "PYKRAFT_INTERPRETED is set"
    compiler: str = sysconfig.get_config_var("CC")
    if shutil.which(compiler.split()[0]) is None:
        return f"there is no C compiler ({compiler})"
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        return f"{header} is missing (Debian: apt-get install python3-dev)"
    return None


class BuildWithLibrary(build_py):
    """Copies the sources, and makes the library beside them."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        reason = why_not()
        if reason is not None:
            print(f"pykraft is installed interpreted: {reason}", file=sys.stderr)
            return
        from compiling import library, sources
        from compiling.c_sources import make_c

        compiled, folder = sources.compiled(), Path(self.build_lib) / "pykraft"
        before = Path.cwd()
        files, headers = make_c(compiled)
        os.chdir(before)
        library.compile_c(files, headers, folder)
        library.write_manifest(compiled, folder, in_place=False)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        found: list[str] = super().get_outputs(include_bytecode)
        folder = Path(self.build_lib) / "pykraft"
        return [
            *found,
            *(str(path) for path in (*folder.glob("compiled.json"), *folder.glob("*__mypyc*.so"))),
        ]


class WheelOfOnePython(bdist_wheel):
    """A compiled library is for one version of Python."""

    def finalize_options(self) -> None:
        if why_not() is None:
            self.py_limited_api: Any = False
        super().finalize_options()
