"""What the page about the command line shows is what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.standalone import StandaloneProcess

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text()
NOT_THE_SAME = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"), "TIME"),
    (re.compile(r"\b(id|topic_id) +[\w-]{22}(?!\S)"), r"\1 ID"),
)
"""What differs from one time to the next, and what the page has in its place."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("page"), brokers=3) as process:
        yield process


def steps() -> list[tuple[str, str]]:
    """Each command of the page's sessions, and what stands below it."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [step for block in blocks for step in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)]


def comparable(text: str) -> list[str]:
    """Lines without what differs each time, and without the widths that depend on it."""
    for pattern, instead in NOT_THE_SAME:
        text = pattern.sub(instead, text)
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_sessions_go_as_shown(brokers: StandaloneProcess) -> None:
    """Each command prints what stands below it; ``...`` stands for any lines."""
    assert len(steps()) >= 15
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given = {**os.environ, "PATH": path, "KREPLICA_ADMIN": brokers.admin_url}
    for command, shown in steps():
        typed = re.sub(r"\bproduce\b", f"produce --bootstrap {brokers.bootstrap_servers}", command)
        done = subprocess.run(["bash", "-o", "pipefail", "-c", typed], cwd=brokers.directory, env=given,
                              capture_output=True, text=True, timeout=100, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        expected = "\n".join(".*" if line == "..." else re.escape(line) for line in comparable(shown))
        printed = "\n".join(comparable(done.stdout))
        assert re.fullmatch(expected, printed, re.DOTALL), f"{command}\n{done.stdout}"


def test_every_option_that_is_named_exists() -> None:
    """The prose names no command or option that the reference below it does not have."""
    prose, reference = PAGE.split("## All commands")
    for words in re.findall(r"`kreplica ((?:[a-z]+ ?)+)", prose):
        command = " ".join(words.split()[:2])
        assert f" kreplica {command}" in reference or f" kreplica {command.split()[0]}\n" in reference, words
    told_of_once = {"--admin", "--token-file", "--ca-file", "--json", "--help", "--brokers"}
    assert set(re.findall(r"--[a-z-]+", prose)) - told_of_once <= set(re.findall(r"--[a-z-]+", reference))
