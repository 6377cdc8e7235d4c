"""Programs on the pages about records, run with a cluster, and their output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

DOCS = Path(__file__).parents[2] / "docs" / "how-to"
PLACEHOLDER = "127.0.0.1:9092"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def cluster(kafka_cluster_factory: Callable[..., KafkaCluster]) -> Iterator[KafkaCluster]:
    with kafka_cluster_factory(3) as made:
        yield made


def run(words: list[str], cluster: KafkaCluster, directory: Path) -> str:
    """Run a program from the page, and return its output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KREPLICA_BOOTSTRAP": cluster.bootstrap_servers}
    done = subprocess.run(
        [word.replace(PLACEHOLDER, cluster.bootstrap_servers) for word in words],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{words[-1]}\n{done.stderr}{done.stdout}"
    return done.stdout


def test_the_examples_for_the_client_run_in_sequence(cluster: KafkaCluster, tmp_path: Path) -> None:
    """Each Python block is a complete program, and succeeds."""
    printed = "".join(
        run([sys.executable, "-c", block], cluster, tmp_path) for block in blocks("blocking-client.md", "python")
    )
    assert "the last one is at orders-" in printed
    assert "1000 records; next offsets:" in printed


def test_the_commands_run_in_sequence(cluster: KafkaCluster, tmp_path: Path) -> None:
    """Each command on the page succeeds, with the topic that the page creates first."""
    cluster.create_topic("greetings", 3)
    lines = [
        line.removeprefix("$ ")
        for block in blocks("produce-and-consume.md", "console")
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    assert len(lines) >= 12
    printed = {line: run(["bash", "-c", line], cluster, tmp_path) for line in lines}
    assert sorted(printed["kreplica consume greetings"].split()) == ["bye", "hello", "hello", "null"]
    assert printed[lines[-1]].startswith("greetings-3: 0 records")
    assert {each.name for each in tmp_path.iterdir()} == {"greetings.jsonl", "greetings.parquet"}
