"""The language check finds banned constructions in every kind of text, and none in plain English."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import check  # noqa: E402


def matches_in(path: str, text: str) -> list[tuple[int, str]]:
    return [(match.line, match.rule.name) for match in check.Checker(()).matches(path, text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""What is waited for."""\n', [(1, "what-clause"), (1, "what-fragment")]),
        ('"""Log of one partition.\n\nNobody reads it.\n"""\n', [(3, "pronoun")]),
        ('"""Of the query."""\n', [(1, "fragment")]),
        ("x = 1  # the state is written anew\n", [(1, "anew")]),
        ('raise ValueError("the broker is no leader")\n', [(1, "is no")]),
        ("# the order is kept, also if the client retries without end\n", [(1, "also if"), (1, "without end")]),
        ("# the dispatch learns it; requests wait for dispatch\n", [(1, "dispatch")]),
        ("def known_again(told: int) -> None: ...\n", [(1, "name")]),
        ("class WhoLeads:\n    nobody_waits = 1\n", [(1, "name"), (2, "name")]),
    ],
)
def test_banned_constructions_in_python(text: str, expected: list[tuple[int, str]]) -> None:
    assert matches_in("module.py", text) == expected


def test_banned_constructions_in_pages_and_settings() -> None:
    page = "# Title\n\nThe retry goes on.\n\n```\nthe program told nobody\n```\n\nThe word `told` is code.\n"
    assert matches_in("page.md", page) == [(3, "go on")]
    assert matches_in("broker.properties", "# So many requests at most.\nname=nobody\n") == [(1, "so many")]


def test_banned_constructions_in_scripts() -> None:
    script = '/** Nobody reads it. */\nconst { words, topic: name } = said("the retry goes on");\n// plain English\n'
    assert matches_in("kreplica/admin/dashboard/a.js", script) == [(1, "pronoun"), (2, "name"), (2, "go on")]


def test_product_names_have_one_word_for_a_rejection() -> None:
    text = "def ask(): ...\nrefusal = 1\ndef refuse_connection(): ...\n"
    assert matches_in("kreplica/a.py", text) == [(1, "name"), (2, "name")]
    assert matches_in("tests/a.py", text) == []


@pytest.mark.parametrize(
    "text",
    [
        '"""Return the high watermark, or None if the log is empty."""\n',
        'raise ValueError("Topic: there is no partition 4")\n',
        "# Kafka 3.9 is no longer started here.\n",
        "if a is not None:  # type: ignore[misc]\n    pass\n",
        '"""What is a leader epoch?"""\n',
        'name = "told"\n',
    ],
)
def test_plain_english_passes(text: str) -> None:
    assert matches_in("module.py", text) == []


def test_allowed_phrases_are_ignored() -> None:
    text = '"""The kernel tells us."""\n'
    assert [match.rule.name for match in check.Checker(["the kernel tells"]).matches("a.py", text)] == []


def test_counts_are_per_package_and_may_only_decrease() -> None:
    assert check.package("kreplica/storage/log.py") == "kreplica/storage"
    assert check.package("README.md") == "README.md"
    assert check.excess({"kreplica/storage": 3, "kreplica/wire": 1}, {"kreplica/storage": 2, "kreplica/wire": 1}) == {
        "kreplica/storage": 3
    }
    assert check.excess({"kreplica/new": 1}, {}) == {"kreplica/new": 1}


def test_ratchet_has_only_packages_that_exist() -> None:
    recorded = json.loads(check.RATCHET.read_text())
    packages = {check.package(path) for path in check.source_files()}
    assert set(recorded) <= packages
    assert all(isinstance(number, int) and number > 0 for number in recorded.values())


def test_source_files_without_git_and_ignored_files(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("build/\n*.egg-info/\nbenchmarks/results/\n")
    for name in ("README.md", "kreplica/log.py", "kreplica/build/made.py", "a.egg-info/x.md", ".git/x.py", "x.json",
                 "benchmarks/results/x.md", "tests/results/x.md"):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    assert sorted(check.source_files(tmp_path)) == ["README.md", "kreplica/log.py", "tests/results/x.md"]
