"""The library, made of C sources by the C compiler; its manifest, by which ``pykraft.compiled`` finds it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from compiling.c_sources import GROUP
from compiling.sources import BUILD, ROOT

NAME: Final = f"{GROUP}__mypyc"
MANIFEST: Final = "compiled.json"
UNITS: Final = 32
"""Modules are given to the C compiler together: each alone would read the declarations of all others."""

FLAGS: Final = (
    *"-fPIC -Os -g0 -DNDEBUG -w -fvisibility=hidden -fno-asynchronous-unwind-tables".split(),
    "-Dinline=inline __attribute__((always_inline))",
)
"""Small, but for the counting of references, which in calls of its own would take a third of the time."""


SLICES: Final = """
static inline PyObject *bytes_slice(PyObject *from, CPyTagged start, CPyTagged end) {
    if (((start | end) & 1) || (Py_ssize_t)(start | end) < 0) return CPyObject_GetSlice(from, start, end);
    return CPyBytes_GetSlice(from, start, start > end ? start : end);
}
#define CPyBytes_GetSlice bytes_slice
"""
"""Bytes that are cut at an end before their start are empty, which to mypyc's own function is an error."""

GENERATORS: Final = """
typedef struct { uint32_t is_running; _PyErr_StackItem handled; } GeneratorRun;
static inline int generator_enter(GeneratorRun *run) {
    PyThreadState *thread = PyThreadState_Get();
    if (run->is_running) return 0;
    run->is_running = 1;
    run->handled.previous_item = thread->exc_info;
    thread->exc_info = &run->handled;
    return 1;
}
static inline void generator_exit(GeneratorRun *run) {
    _PyErr_StackItem *others = PyThreadState_Get()->exc_info = run->handled.previous_item;
    PyObject *error = run->handled.exc_value;
    run->handled.previous_item = NULL;
    run->is_running = 0;
    if (error == NULL) return;
    while (others->previous_item != NULL && (others->exc_value == NULL || others->exc_value == Py_None))
        others = others->previous_item;
    if (error != others->exc_value && error != Py_None) return;
    run->handled.exc_value = NULL;
    Py_DECREF(error);
}
#define CPyGen_TryEnter generator_enter
#define CPyGen_Exit generator_exit
"""
"""A coroutine has errors of its own that it handles, as in Python (``gi_exc_state``).

In mypyc's own functions it leaves the error that it handles, while it waits, to all others of its thread:
their errors get that one as context, a ``raise`` behind the wait raises what they handle, and some of them is
kept for ever. What is handled by who has called it is not its own.
"""

METACLASSES: Final = """
static __attribute__((noinline, cold)) PyObject *
made_by_metaclass(PyObject *like, PyObject *bases, PyObject *module) {
    PyObject *made = CPyType_FromTemplate(like, bases, module), *abc, *done;
    if (made == NULL || strcmp(Py_TYPE(made)->tp_name, "ABCMeta") != 0) return made;
    abc = PyImport_ImportModule("_abc");
    done = abc == NULL ? NULL : PyObject_CallMethod(abc, "_abc_init", "O", made);
    Py_XDECREF(abc);
    if (done == NULL) Py_CLEAR(made);
    Py_XDECREF(done);
    return made;
}
#define CPyType_FromTemplate made_by_metaclass
"""
"""Without it an abstract class has no instances but those of its base, which then all are its own."""

THROWN: Final = """
static __attribute__((noinline, cold)) void thrown(PyObject *type, PyObject *value, PyObject *traceback) {
    PyObject *error = PyExceptionInstance_Check(type) ? type : value, *own = NULL;
    if (traceback == Py_None && PyExceptionInstance_Check(error)) own = PyException_GetTraceback(error);
    CPyErr_SetObjectAndTraceback(type, value, own == NULL ? traceback : own);
    Py_XDECREF(own);
}
#define CPyErr_SetObjectAndTraceback thrown
"""
"""An error that is thrown into a coroutine, as one is that a task waited for, keeps its traceback."""


def path(folder: Path = ROOT) -> Path:
    """Of the library for this Python."""
    return folder / f"{NAME}{sysconfig.get_config_var('EXT_SUFFIX')}"


def remove() -> None:
    """From the clone."""
    for one in (ROOT / MANIFEST, path()):
        one.unlink(missing_ok=True)


def compile_c(files: Sequence[Path], headers: Sequence[Path], folder: Path = ROOT) -> None:
    """:class:`subprocess.CalledProcessError` with the compiler's messages above it."""
    modules = [file for file in files if file.name.startswith("__native")]
    others = [file for file in files if file not in modules]
    compiler = sysconfig.get_config_var("CC").split()
    include = [f"-I{one}" for one in (*headers, sysconfig.get_path("include"))]

    def compile_one(file: Path) -> str:
        target = str(BUILD / "c" / f"{file.stem}.o")
        subprocess.run([*compiler, *FLAGS, *include, "-c", str(file), "-o", target], check=True)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        objects = list(
            threads.map(compile_one, [*_units(modules), *others, Path(__file__).parent / "entry.c"])
        )
    subprocess.run([*compiler, "-shared", "-s", "-o", str(path(folder)), *objects], check=True)


def _units(files: Sequence[Path]) -> Iterator[Path]:
    """Files that include some others, all about equally long."""
    units: list[tuple[int, list[Path]]] = [(0, []) for _ in range(UNITS)]
    for file in sorted(files, key=lambda file: -file.stat().st_size):
        smallest = min(range(UNITS), key=lambda number: units[number][0])
        size_bytes, members = units[smallest]
        units[smallest] = (size_bytes + file.stat().st_size, [*members, file])
    # All but Python itself is in one library: it is found without the linker's tables.
    begin = f"#include <Python.h>\n#include <CPy.h>\n{SLICES}{GENERATORS}{METACLASSES}{THROWN}"
    begin += "#pragma GCC visibility push(hidden)\n"
    for number, (_, members) in enumerate(units):
        unit = BUILD / "c" / f"unit_{number:02}.c"
        unit.write_text(begin + "".join(f'#include "{file}"\n' for file in members), encoding="utf-8")
        yield unit


def write_manifest(compiled: Sequence[str], folder: Path = ROOT, *, in_place: bool) -> None:
    """``in_place``: with the time of each source, so that a change of it is seen at once."""
    from mypyc.namegen import exported_name

    modules = {}
    kept = {}
    for one in compiled:
        name = "pykraft." + one.removesuffix(".py").replace("/", ".")
        modules[name] = f"init_{exported_name(name)}"
        data = (ROOT / one).read_bytes()
        kept[one] = [len(data), zlib.crc32(data), (ROOT / one).stat().st_mtime_ns if in_place else 0]
    manifest = {
        "python": sys.implementation.cache_tag,
        "library": path().name,
        "modules": modules,
        "sources": kept,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, separators=(",", ":")), encoding="utf-8")
