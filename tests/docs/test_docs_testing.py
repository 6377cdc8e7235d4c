"""Examples on the page about testing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

pytest_plugins = "pytester"

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "testing.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_every_example_is_a_suite_that_passes(pytester: pytest.Pytester) -> None:
    """Each Python block is a complete test file, and passes."""
    files = {f"test_example_{number}": text for number, text in enumerate(blocks("python"))}
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider -p no:schemathesis --strict-markers\n")
    pytester.makepyfile(**files)
    result = pytester.runpytest_subprocess("-v")
    outcomes = result.parseoutcomes()
    assert set(outcomes) <= {"passed", "warnings", "warning"}, outcomes
    for name in files:
        result.stdout.fnmatch_lines([f"*{name}.py::test_*PASSED*"])


def test_the_json_requests_have_the_shown_responses() -> None:
    """Each request gets the response on the next line of the page, except for the ports."""
    (conversation,) = blocks("json")
    lines = [json.loads(line) for line in conversation.splitlines()]
    requests, answers = lines[::2], lines[1::2]
    command = [sys.executable, "-m", "kreplica.testing.fixtures.host"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        for request, shown in zip(requests, answers, strict=True):
            print(json.dumps(request), file=host.stdin, flush=True)
            response = host.stdout.readline()
            assert re.sub(r":\d{4,5}\b", ":PORT", response) == re.sub(r":\d{4,5}\b", ":PORT", json.dumps(shown)) + "\n"
        host.stdin.close()
        assert host.wait(10) == 0


def test_every_call_in_the_tables_exists() -> None:
    """Every method on the page exists, and every method that injects a fault is on the page."""
    calls = "".join(re.findall(r"^\| (`[^|]*)\|", PAGE, re.MULTILINE))
    named = set(re.findall(r"`(\w+)", calls))
    public = {name for name in vars(KafkaCluster) if not name.startswith("_")}
    assert named <= public
    deprecated = {"partition"}
    assert public - named - deprecated <= {"close", "closed", "create_topic"}
