"""``kreplica verify`` with Apache Kafka; needs Java and Maven, so it is part of the soak."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apache_kafka
import pytest
from kraft_cluster import NODES, KraftCluster

pytestmark = pytest.mark.soak


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KraftCluster]:
    try:
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried on Apache Kafka: {missing}")
    with KraftCluster(tmp_path) as cluster:
        yield cluster


class VerifyCommand:
    """The running command ``kreplica verify``."""

    def __init__(self, bootstrap_servers: str) -> None:
        command = [sys.executable, "-m", "kreplica.cli", "verify", "--bootstrap", bootstrap_servers]
        self._process = subprocess.Popen(
            [*command, "--seconds", "600", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait_for_more(self) -> None:
        """Wait until the command has reported progress several times, with few records in flight."""
        assert self._process.stderr is not None
        counts: list[int] = []
        while len(counts) < 3:
            line = self._process.stderr.readline()
            assert line, "the command has ended"
            progress = re.search(r"writing: ([\d,]+) of", line)
            if progress is not None:
                count = int(progress[1].replace(",", ""))
                counts = [*counts, count] if count > (counts or [0])[-1] else [count]

    def stop(self) -> dict[str, object]:
        """Interrupt the command, and return its result."""
        self._process.send_signal(signal.SIGINT)
        out, err = self._process.communicate(timeout=120)
        assert self._process.returncode == 0, out + err
        result: dict[str, object] = json.loads(out)
        return result

    def __enter__(self) -> VerifyCommand:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def test_every_broker_of_apache_kafka_is_killed(kafka: KraftCluster) -> None:
    """Kafka keeps acknowledged records, and the check finds no anomaly."""
    with VerifyCommand(kafka.bootstrap_servers) as verify:
        verify.wait_for_more()
        for node in NODES:
            kafka.kill(node)
            verify.wait_for_more()
            kafka.start(node)
            verify.wait_for_more()
        result = verify.stop()
    assert result["clean"]
    assert result["records_acknowledged"] == result["records_sent"]
    assert result["client_errors"]
