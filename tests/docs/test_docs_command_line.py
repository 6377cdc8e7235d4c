"""Sessions and options on the page about the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import page_sessions as sessions
import pytest

from tests.support.standalone import StandaloneProcess

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("page"), brokers=3) as process:
        yield process


def test_the_sessions_print_the_shown_output(brokers: StandaloneProcess) -> None:
    """Each command prints the output on the page; ``...`` matches any lines."""
    steps = list(sessions.steps(PAGE))
    assert len(steps) >= 15
    for command, shown in steps:
        printed = sessions.output(command, brokers.directory, {"KREPLICA_ADMIN": brokers.admin_url})
        sessions.assert_as_shown(command, printed, shown)


def test_every_option_that_is_named_exists() -> None:
    """All commands and options in the text exist in the page's reference."""
    prose, reference = PAGE.split("## All commands")
    for words in re.findall(r"`kreplica ((?:[a-z]+ ?)+)", prose):
        command = " ".join(words.split()[:2])
        assert f" kreplica {command}" in reference or f" kreplica {command.split()[0]}\n" in reference, words
    common = {"--admin", "--token-file", "--ca-file", "--user", "--password-file", "--certificate-file"}
    once = common | {"--json", "--help", "--brokers"}
    assert set(re.findall(r"--[a-z-]+", prose)) - once <= set(re.findall(r"--[a-z-]+", reference))
