"""Commands on documentation pages succeed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/how-to/simulation.md")
"""Pages on which every ``kreplica`` command runs without a cluster."""


def commands() -> list[str]:
    """Return all distinct ``kreplica`` commands in the pages' console blocks."""
    blocks = [block for page in PAGES for block in re.findall(r"```console\n(.*?)```", (ROOT / page).read_text(), re.S)]
    lines = [line for block in blocks for line in block.splitlines()]
    return list(dict.fromkeys(line.removeprefix("$ ") for line in lines if line.startswith("$ kreplica ")))


def test_the_pages_have_commands() -> None:
    assert len(commands()) >= 5


def shorten_storms(words: list[str]) -> list[str]:
    """Return the command with fewer and shorter storms."""
    return [*words, "--option", "seconds=5"] if "--seeds" in words else words


@pytest.mark.parametrize("command", commands())
def test_a_command_works(command: str, tmp_path: Path) -> None:
    """The command succeeds in an empty directory."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = shorten_storms(shlex.split(command))
    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr or done.stdout
