"""Pages, docstrings and texts for users read as English authors write."""

from pathlib import Path

import pytest

from tests.docs import english


def test_nothing_reads_translated() -> None:
    assert [str(finding) for finding in english.find()] == []


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("The file. Whoever has\nit.\n", [(2, "Whoever has it.")]),
        ("| name | Of the file. |\n", [(2, "| Of the file. |")]),
        ("Of course, `whoever` may.\n\n```sh\nwhoever\n```\n", []),
    ],
)
def test_word_list_finds_what_it_is_for(
    page: str, found: list[tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(english, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text(f"\n{page}", encoding="utf-8")
    assert [(finding.line, finding.text) for finding in english.find()] == found


def test_docstrings_of_attributes_and_messages_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(english, "ROOT", tmp_path)
    (tmp_path / "node").mkdir()
    code = 'X = 1\n"""Of the file."""\nraise ValueError("it waits in vain")\n'
    (tmp_path / "node" / "module.py").write_text(code, encoding="utf-8")
    assert sorted(finding.line for finding in english.find()) == [2, 3]
