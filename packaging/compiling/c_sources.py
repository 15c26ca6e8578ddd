"""C sources of compiled modules: their Python sources in the forms that mypyc compiles well, given to it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from compiling import inheritance, plain_classes, sources
from compiling.constants import looked_up, with_finals
from compiling.sources import BUILD, UncompilableError

GROUP: Final = "pykraft_compiled"
MYPY: Final = """[mypy]
explicit_package_bases = True
namespace_packages = True
follow_imports = silent
ignore_missing_imports = True
"""

TRACEBACK: Final = re.compile(
    r'CPy_(AddTraceback|TypeErrorTraceback)\("pykraft/([^"]+)", "([^"]*)", (-?\d+), CPyStatic_(\w+)___globals'
)


GENERATOR: Final = re.compile(r"typedef struct \{[^}]*? mypyc_running;[^}]*\} (\w+);")
RUNNING: Final = "    uint32_t mypyc_running;\n"
RUN: Final = "    GeneratorRun mypyc_running;\n"
VISITED: Final = re.compile(r"_traverse\((\w+) \*self, visitproc visit, void \*arg\)\n\{\n")
DROPPED: Final = re.compile(
    r"_clear(?:_subtype|_on_completion)?\(PyObject \*cpy_r_self\)\n\{\n    (\w+) \*self = .*;\n"
    r"|_dealloc\((\w+) \*self\)\n\{\n(?:    .*\n)*?        \w+_free_instance = self;\n"
)

CLEARED: Final = re.compile(r"    CPyDef_(\w+)_clear(?:_subtype)?\(\(PyObject \*\)self\);\n")
"""What a deallocation begins with."""
WEAK_LIST: Final = re.compile(
    r" *Py_(VISIT|CLEAR)\(\*\(\(PyObject \*\*\)\(\(char \*\)self"
    r" \+ sizeof\(PyObject \*\) \+ sizeof\(\w+\)\)\)\);\n"
)


def make_c(compiled: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """The C sources of the library, and the directories of their headers.

    Ends the process with mypy's messages if a module cannot be compiled.
    """
    from mypyc.build import mypycify

    numbers = _copy_sources(compiled)
    (BUILD / "mypy.ini").write_text(MYPY, encoding="utf-8")
    before = Path.cwd()
    os.chdir(BUILD / "src")  # the compiler names modules by where they are
    os.environ["MYPYPATH"] = "."
    options = [f"--config-file={BUILD / 'mypy.ini'}", f"--cache-dir={BUILD / 'mypy'}"]
    try:
        made, *_ = mypycify(
            [*options, *(f"pykraft/{path}" for path in compiled)],
            multi_file=True,
            target_dir=str(BUILD / "c"),
            group_name=GROUP,
        )
        files = [Path(file).resolve() for file in made.sources]
        headers = [Path(one).resolve() for one in made.include_dirs]
    finally:
        os.chdir(before)
    header = BUILD / "c" / f"__native_{GROUP}.h"
    declared, generators = with_own_errors_declared(header.read_text(encoding="utf-8"))
    header.write_text(declared, encoding="utf-8")
    for file in files:
        if file.name.startswith("__native_pykraft___"):
            text = file.read_text(encoding="utf-8")
            text = with_weak_references(with_short_tracebacks(text, numbers))
            file.write_text(with_own_errors(text, generators), encoding="utf-8")
    return files, [*headers, BUILD / "c"]


def _copy_sources(compiled: Sequence[str]) -> dict[str, list[int]]:
    """Into the build; returns the lines of each compiled file in its source."""
    shutil.rmtree(BUILD, ignore_errors=True)  # the compiler takes what it finds there
    texts = sources.product()
    sources.check({path: texts[path] for path in compiled})
    subclassed = sources.listed()["subclassed"]
    constants = sources.listed()["looked_up"]
    inheritance.check(texts, compiled, subclassed)
    python = [text for path, text in texts.items() if path.endswith(".py")]
    classes = plain_classes.Classes.of(python, subclassed)
    numbers = {}
    for path, text in texts.items():
        target = BUILD / "src" / "pykraft" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        names = constants.get(path, ())
        text = looked_up(text, names)
        if path in compiled:
            text, numbers["pykraft/" + path] = plain_classes.rewrite(with_finals(text, names), path, classes)
        target.write_text(text, encoding="utf-8")
    return numbers


def with_own_errors_declared(header: str) -> tuple[str, frozenset[str]]:
    """The header with room in generators for the error that each handles while it waits; their names."""
    found = frozenset(GENERATOR.findall(header))
    if not found:
        raise UncompilableError("this version of mypyc writes generators in a form that cannot be corrected")
    return header.replace(RUNNING, RUN), found


def with_own_errors(text: str, generators: Collection[str]) -> str:
    """The C source of a module whose generators own these errors (``library.GENERATORS``)."""
    error = "self->mypyc_running.handled.exc_value"

    def visited(found: re.Match[str]) -> str:
        return found.group(0) + f"    Py_VISIT({error});\n" * (found.group(1) in generators)

    def dropped(found: re.Match[str]) -> str:
        name = found.group(1) or found.group(2)
        return found.group(0) + f"    Py_CLEAR({error});\n" * (name in generators)

    return DROPPED.sub(dropped, VISITED.sub(visited, text))


def with_weak_references(text: str) -> str:
    """The C source of a module whose objects, when they go, tell the weak references to them.

    The compiler makes room for weak references in classes that are derived from one of Python, and takes the
    list of them for something that the object owns; who asks such a reference later reads another's memory.
    """

    def cleared(found: re.Match[str]) -> str:
        _, _, declared = text.partition(f"CPyType_{found.group(1)}_template_ = {{")
        has_list = ".tp_weaklistoffset" in declared.partition("};")[0]
        told = "    PyObject_ClearWeakRefs((PyObject *)self);\n" if has_list else ""
        return told + found.group(0)

    return WEAK_LIST.sub("", CLEARED.sub(cleared, text))


def with_short_tracebacks(text: str, numbers: Mapping[str, Sequence[int]]) -> str:
    """The C source of a module that names a place by one number where it named it by four.

    A tenth of the machine code would do nothing but load them: in a module they are the same but for function
    and line. ``numbers``: for each file that was compiled its lines in the source.
    """
    functions: dict[str, int] = {}
    path = module = ""

    def place(found: re.Match[str]) -> str:
        nonlocal path, module
        kind, path, function, line, module = found.groups()
        path = f"pykraft/{path}"
        lines = numbers.get(path, ())
        number = max(0, int(line))
        number = lines[number] if number < len(lines) else number
        at = functions.setdefault(function, len(functions)) << 16 | number
        return f"{'traceback' if kind == 'AddTraceback' else 'type_error'}_{module}({at}u"

    changed = TRACEBACK.sub(place, text)
    if not functions:
        return text
    names = ", ".join(f'"{name}"' for name in functions)
    at = f'"{path}", functions_{module}[place >> 16], place & 0xffff, CPyStatic_{module}___globals'
    helpers = f"""
static const char *const functions_{module}[] = {{{names}}};
__attribute__((noinline, cold)) static void traceback_{module}(unsigned place) {{ CPy_AddTraceback({at}); }}
__attribute__((noinline, cold)) static void
type_error_{module}(unsigned place, const char *type, PyObject *value) {{
    CPy_TypeErrorTraceback({at}, type, value);
}}
"""
    includes = '#include "__native_internal_pykraft_compiled.h"\n'
    return changed.replace(includes, includes + helpers, 1)
