"""The pattern language of RE2: agrees with Python's where both apply, and cannot be made slow."""

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykraft.regex.pattern import RegexError, compile_pattern

NAMES = ["", "a", "ab", "abc", "foo", "foo-bar", "foo.bar", "topic_1", "topic-12", "A1", "aaaa", "b\n"]


@pytest.mark.parametrize(
    "pattern",
    [
        "foo.*", "foo|a+", "(?:a|b)*", "[a-c]{2,3}", "topic[-_]\\d+", "\\w+", "[^a]+", "a{2}b?", "^foo.bar$",
        "foo\\.bar", "(a)(b)(c)?", "", "a||b", "[]a]b?", "[a-]+", "x*", "(?P<n>a)b*", "a{,2}", "a{2", "\\S+",
        ".", "(a*)*", "(a|a?)+", "[\\d\\w]+", "\\x61b",
    ],
)  # fmt: skip
def test_pattern_matches_what_python_matches(pattern: str) -> None:
    python = pattern
    if pattern == "a{,2}":
        python = re.escape(pattern)  # RE2 treats such a brace as a literal
    compiled = compile_pattern(pattern)
    for name in [*NAMES, "a{,2}", "a{2"]:
        assert compiled.matches(name) == bool(re.fullmatch(python, name, re.ASCII)), (pattern, name)


def test_quoted_part_is_literal() -> None:
    assert compile_pattern("\\Qa.b*\\E.*").matches("a.b*c")
    assert not compile_pattern("\\Qa.b*\\E").matches("axb")


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\w", "(a|b)", "((ab)?)", "(a*)"])
patterns = st.lists(st.tuples(atoms, st.sampled_from(["", "*", "+", "?", "{1,2}"])), max_size=6).map(
    lambda parts: "".join(atom + count for atom, count in parts)
)


RE2J = json.loads((Path(__file__).parent / "re2j_patterns.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("pattern", RE2J["patterns"])
def test_pattern_means_the_same_as_in_kafka(pattern: str) -> None:
    """The answers of RE2/J 1.8 (``Pattern.compile`` and ``matches``), the library of Kafka's coordinator."""
    try:
        compiled = compile_pattern(pattern)
    except RegexError:
        found = None
    else:
        found = "".join("01"[compiled.matches(name)] for name in RE2J["names"])
    assert found == RE2J["patterns"][pattern]


@given(patterns, st.text("abc", max_size=8))
def test_random_patterns_agree_with_python(pattern: str, name: str) -> None:
    assert compile_pattern(pattern).matches(name) == bool(re.fullmatch(pattern, name))


@pytest.mark.parametrize(
    "pattern",
    ["(a", "a)", "[a", "a**", "*a", "\\1", "(?=a)b", "(?<!a)b", "a{3,2}", "a{1001}", "\\", "[b-a]",
     "(" * 200 + ")" * 200, "x" * 10_001, "((a{100}){100}){100}", "[[:nope:]]", "(?P=n)", "\\xg1"],
)  # fmt: skip
def test_unusable_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(RegexError):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(a|a)*b",
        "(.*)*x",
        ".*.*.*.*.*.*.*.*x",
        "(a?){100}a{100}b",
        "(?i)(\\b|a?){500}x",
        "(.*a.{200})*x",
    ],
)
def test_pattern_that_backtracks_elsewhere_stays_fast(pattern: str) -> None:
    compiled = compile_pattern(pattern)
    start = time.process_time()
    assert not compiled.matches("a" * 249)
    assert time.process_time() - start < 2
