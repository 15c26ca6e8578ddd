"""The list of compiled modules, and what the build refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from compiling import inheritance, sources
from compiling.constants import looked_up, with_finals


def test_every_module_of_the_packages_is_compiled_or_has_its_reason() -> None:
    compiled = set(sources.compiled())
    excepted = [path for paths in sources.listed()["interpreted"].values() for path in paths]
    left = {
        path
        for path in sources.product()
        if path.startswith(tuple(f"{one}/" for one in sources.listed()["packages"]))
        and path.endswith(".py")
        and not path.endswith("__init__.py")
    } - compiled
    assert left == {path for path in left if path in excepted or path.startswith(tuple(excepted))}
    assert {"broker/serving/request_server.py", "log_store/log/log.py"} <= compiled


def test_a_new_module_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    names: dict[str, Any] = {"packages": ["broker"], "interpreted": {"cold": ["broker/cold/"]}}
    names |= {"subclassed": {}, "looked_up": {}}
    monkeypatch.setattr(sources, "listed", lambda: names)
    for path in ("broker/new.py", "broker/cold/other.py", "broker/__init__.py", "brokers/third.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    assert sources.compiled() == ["broker/new.py"]
    names["interpreted"] = {"gone": ["broker/gone.py"]}
    with pytest.raises(sources.UncompilableError, match=r"there is no broker/gone\.py"):
        sources.compiled()


TWO_ERRORS = """
def read():
    try:
        pass
    except OSError as error:
        raise error
    except {kind} as {name}:
        raise
"""


def test_a_name_of_two_errors_is_refused_with_its_place() -> None:
    with pytest.raises(sources.UncompilableError, match=r"log\.py:7: error is an error of another kind"):
        sources.check({"log.py": TWO_ERRORS.format(kind="ValueError", name="error")})
    sources.check({"log.py": TWO_ERRORS.format(kind="ValueError", name="mistake")})
    sources.check({"log.py": TWO_ERRORS.format(kind="OSError", name="error")})


MISTRANSLATED = """
async def wait(lock, given):
    try:
        match given:
            case {pattern}:
                await lock.acquire()
    finally:
        {last}
"""


def test_what_waits_in_a_finally_or_names_alternatives_is_refused_with_its_place() -> None:
    with pytest.raises(sources.UncompilableError, match=r"wait\.py:8: finally waits"):
        sources.check({"wait.py": MISTRANSLATED.format(pattern="None", last="await lock.release()")})
    with pytest.raises(sources.UncompilableError, match=r"wait\.py:5: one is a name of alternatives"):
        sources.check({"wait.py": MISTRANSLATED.format(pattern="(int() | None) as one", last="pass")})
    sources.check({"wait.py": MISTRANSLATED.format(pattern="int() | None", last="lock.release()")})


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ("pass_on(name for name in names)", True),
        ("return (name for name in names)", True),
        ("for name in (one for one in names): pass", True),
        ("return max(len(name) for name in names)", False),
        ("return ' '.join(name for name in names)", False),
        ("first, second = (int(name) for name in names)", False),
        ("print(*(name for name in names))", False),
        ("yield from [name for name in names]", False),
    ],
)
def test_generator_expression_that_something_takes_its_time_with_is_refused(
    line: str, is_refused: bool
) -> None:
    source = {"names.py": f"def of(names):\n    {line}\n"}
    if not is_refused:
        sources.check(source)
        return
    with pytest.raises(
        sources.UncompilableError, match=r"names\.py:2: a generator expression is a list here"
    ):
        sources.check(source)


def test_interpreted_class_of_a_compiled_base_is_refused() -> None:
    base = "class Link:\n    pass\n"
    derived = "from pykraft.broker.link import Link as Base\n\nclass Slow(Base):\n    pass\n"
    texts = {"broker/link.py": base, "node/slow.py": derived}
    with pytest.raises(sources.UncompilableError, match=r"node/slow\.py:3: Slow is interpreted, Link of"):
        inheritance.check(texts, ["broker/link.py"], {})
    inheritance.check(texts, ["broker/link.py"], {"broker/link.py": ["Link"]})
    inheritance.check(texts, list(texts), {})
    inheritance.check(texts, [], {})


def test_no_source_of_the_product_is_refused() -> None:
    texts = sources.product()
    inheritance.check(texts, sources.compiled(), sources.listed()["subclassed"])
    sources.check({path: texts[path] for path in sources.compiled()})


def test_constant_that_tests_replace_is_looked_up() -> None:
    source = "A: Final = 1\nB: Final[int] = 2\nC = 3\nD = 4\n"
    names = ["A", "B", "C"]
    assert looked_up(source, names) == "A = 1\nB: int = 2\nC = 3\nD = 4\n"
    assert with_finals(looked_up(source, names), names) == "A = 1\nB: int = 2\nC = 3\nD: Final = 4\n"
    with pytest.raises(sources.UncompilableError, match="there is no constant E"):
        looked_up(source, ["E"])


def test_every_constant_that_tests_replace_exists() -> None:
    texts = sources.product()
    for path, names in sources.listed()["looked_up"].items():
        looked_up(texts[path], names)
