"""Programs on the pages about the client library, run with a cluster, and their output."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kreplica.client
from kreplica.client import errors
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GUIDE = "how-to/twisted-client.md"
TUTORIAL = "tutorials/twisted-service.md"
MIGRATION = "how-to/migrate-from-other-clients.md"
PLACEHOLDER = "127.0.0.1:9092"
TIMEOUT_S = 60.0
STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} ")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INTERRUPT = "^C"

# Runs code fragments in sequence with shared names, and prints a separator line after each.
FRAGMENTS = """
import ast, inspect, json, sys
from twisted.internet.task import react

async def main(reactor):
    names = {"reactor": reactor}
    for block in json.load(sys.stdin):
        code = compile(block, "<block>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        running = eval(code, names)
        if inspect.iscoroutine(running):
            await running
        print("-- end of block --", flush=True)

react(main)
"""


@pytest.fixture
def cluster(kafka_cluster_factory: Callable[..., KafkaCluster]) -> Iterator[KafkaCluster]:
    with kafka_cluster_factory(3) as made:
        yield made


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TZ": "UTC"}


def is_as_shown(printed: list[str], shown: list[str]) -> bool:
    """Return True if the printed lines match the page, on which ``...`` is any number of lines or any part of one.

    Timestamps of log lines are ignored.
    """
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(is_as_shown(printed[begin:], shown[1:]) for begin in range(len(printed) + 1))
    if not printed:
        return False
    ours, theirs = (STAMP.sub("", line) for line in (printed[0], shown[0]))
    matches = re.fullmatch(re.escape(theirs).replace(re.escape("..."), ".*"), ours)
    return matches is not None and is_as_shown(printed[1:], shown[1:])


def wait_until_idle(pid: int) -> None:
    """Wait until a process sleeps.

    A signal in the middle of a log line would lose the next line, because a file cannot be written by a signal handler
    that interrupts a write to it.
    """
    until_s = time.monotonic() + TIMEOUT_S
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S" and time.monotonic() < until_s:
        time.sleep(0.01)


def run(command: str, shown: list[str], directory: Path) -> list[str]:
    """Run a command from a page, interrupt it where the page does, and return the printed lines."""
    with subprocess.Popen(
        ["bash", "-c", f"exec env {command}"],
        cwd=directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        printed: list[str] = []
        try:
            if INTERRUPT in shown:
                before = shown[: shown.index(INTERRUPT)]
                for line in process.stdout:
                    printed.append(line.rstrip("\n"))
                    if is_as_shown(printed, before):
                        break
                printed.append(INTERRUPT)
                wait_until_idle(process.pid)
                process.send_signal(signal.SIGINT)
            printed += process.communicate(timeout=TIMEOUT_S)[0].splitlines()
        finally:
            process.kill()
    assert process.returncode == 0 or INTERRUPT in shown, "\n".join([command, *printed])
    return printed


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command after a prompt, and the output below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield command, shown


def test_the_tutorial_prints_the_shown_output(cluster: KafkaCluster, tmp_path: Path) -> None:
    """Each program of the tutorial is written to a file and run, and prints the output on the page."""
    page = (DOCS / TUTORIAL).read_text().replace(PLACEHOLDER, cluster.bootstrap_servers)
    ran = 0
    for language, text in BLOCK.findall(page):
        if language == "python":
            (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text)
        elif language == "console":
            for command, shown in commands(text):
                printed = run(command, shown, tmp_path)
                assert is_as_shown(printed, shown), "\n".join([f"$ {command}", *printed])
                ran += 1
    assert ran >= 7


def test_the_fragments_of_the_guide_run_in_sequence(cluster: KafkaCluster) -> None:
    """The guide's fragments run in one program; their output is compared if the page shows it."""
    page = (DOCS / GUIDE).read_text().replace(PLACEHOLDER, cluster.bootstrap_servers)
    blocks = [(language, text) for language, text in BLOCK.findall(page) if language in ("python", "text")]
    programs = [text for language, text in blocks if language == "python"]
    done = subprocess.run(
        [sys.executable, "-c", FRAGMENTS],
        input=json.dumps(programs),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    printed = iter(done.stdout.split("-- end of block --\n"))
    last: list[str] = []
    for language, text in blocks:
        if language == "python":
            last = next(printed).splitlines()
        else:
            assert is_as_shown(last, text.splitlines()), "\n".join(last)


def test_the_program_in_the_readme_works(cluster: KafkaCluster, tmp_path: Path) -> None:
    """The program writes to the topic that the page has created, and reads it as a group."""
    cluster.create_topic("greetings", 1)
    page = (ROOT / "README.md").read_text().replace(PLACEHOLDER, cluster.bootstrap_servers)
    (program,) = (text for language, text in BLOCK.findall(page) if language == "python" and "kreplica.client" in text)
    (tmp_path / "program.py").write_text(program)
    printed = run("python program.py", [], tmp_path)
    assert printed == ["in greetings-0 at offset 0", "0 b'good day'"]


def test_the_guide_has_every_error_and_every_public_name_exists() -> None:
    """The guide explains every error class, and every name that the pages import exists."""
    pages = {page: (DOCS / page).read_text() for page in (GUIDE, TUTORIAL, MIGRATION)}
    for name in errors.__all__:
        assert f"`{name}`" in pages[GUIDE], name
    for page, text in pages.items():
        for name in re.findall(r"`(?:Client|Producer|Consumer|Group)Options\.\w+`", text):
            options, field = name.strip("`").split(".")
            assert hasattr(getattr(kreplica.client, options), field), f"{page}: {name}"


def test_compared_code_compiles() -> None:
    """The code in comparisons with other clients compiles."""
    for language, text in BLOCK.findall((DOCS / MIGRATION).read_text()):
        if language == "python":
            compile(f"async def main():\n{re.sub('^', '    ', text, flags=re.MULTILINE)}", MIGRATION, "exec")
