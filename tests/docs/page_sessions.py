"""Runs the console sessions of a page and compares their output with the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.standalone import StandaloneProcess

VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC"), "TIME"),
    (re.compile(r"\b(id|topic_id) +[\w-]{22}(?!\S)"), r"\1 ID"),
)
"""Patterns for text that differs between runs, each with its replacement for comparisons."""

ANY_LINES = "..."
TIMEOUT_S = 100.0
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def blocks(page: str) -> list[tuple[str, str]]:
    """Return the code blocks of a page: language and text."""
    return BLOCK.findall(page)


def steps(page: str) -> Iterator[tuple[str, str]]:
    """Yield each command in the page's console blocks, with the output shown on the page."""
    for language, text in blocks(page):
        if language == "console":
            yield from STEP.findall(text)


def with_ports_of(text: str, process: StandaloneProcess, brokers: int = 3) -> str:
    """Replace the default ports in a text by those of the process."""
    for number in range(brokers):
        text = text.replace(f"127.0.0.1:{9092 + number}", f"127.0.0.1:{process.port + number}")
    return text.replace("127.0.0.1:8080", f"127.0.0.1:{process.admin_port}")


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a shell with the active virtual environment and these variables."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, **variables}


def output(command: str, directory: Path, variables: Mapping[str, str]) -> str:
    """Run a command and return its standard output."""
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=directory, env=environment(variables),
                          capture_output=True, text=True, timeout=TIMEOUT_S, check=False)  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stderr}{done.stdout}"
    return done.stdout


def comparable(text: str) -> list[str]:
    """Return the lines with placeholders for varying text, and without the column widths that depend on it."""
    for pattern, placeholder in VARYING:
        text = pattern.sub(placeholder, text)
    return [" ".join(line.split()) for line in text.splitlines()]


def assert_as_shown(command: str, printed: str, shown: str) -> None:
    """Compare a command's output with a page, on which ``...`` matches any lines."""
    expected = "\n".join(".*" if line == ANY_LINES else re.escape(line) for line in comparable(shown))
    assert re.fullmatch(expected, "\n".join(comparable(printed)), re.DOTALL), f"{command}\n{printed}"
