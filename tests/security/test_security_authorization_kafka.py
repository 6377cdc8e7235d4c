"""Records Apache Kafka 3.9.1's answers to the authorization matrix."""

from __future__ import annotations

from pathlib import Path

import pytest
from authorization_cases import ADMIN, Matrix, properties
from authorization_client import Connection
from authorization_recorded import ANSWERS, load, save
from authorization_table import TABLE

from kreplica.wire.messages import API_VERSIONS
from tests.interop import apache_kafka

pytestmark = pytest.mark.soak


def supported(port: int) -> dict[int, tuple[int, int]]:
    """Return the versions that a broker advertises, by API key."""
    connection = Connection(port)
    assert connection.authenticate(ADMIN) == 0
    rows = connection.request(API_VERSIONS, 3, {"client_software_name": "test", "client_software_version": "1"})
    connection.close()
    return {row["api_key"]: (row["min_version"], row["max_version"]) for row in rows["api_keys"]}


def test_record(tmp_path: Path, certificates: Path) -> None:
    """The recorded answers are Apache Kafka's; if they are not, the file is rewritten and the test fails."""
    try:
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(str(missing))
    ports = {"LOCAL": apache_kafka.free_port(), "TLS": apache_kafka.free_port()}
    with apache_kafka.zookeeper(tmp_path) as zookeeper:
        more = {"zookeeper.connect": zookeeper, "log.dirs": str(tmp_path / "kafka")}
        process = apache_kafka.start("kafka.Kafka", {**properties(certificates, ports), **more}, tmp_path, "512m")
        try:
            for port in ports.values():
                apache_kafka.wait_for_port(port, process)
            theirs = supported(ports["LOCAL"])
            versions = {}
            for api in sorted({entry.api for entry in TABLE}, key=lambda each: each.key):
                lowest, highest = theirs.get(api.key, api.versions)
                versions[str(api.key)] = (max(lowest, api.versions[0]), min(highest, api.versions[1]))
            answers = Matrix(ports, versions, certificates).run()
        finally:
            process.kill()
            process.wait(30)
    recorded = load() if ANSWERS.exists() else None
    if recorded != (versions, answers):
        save(versions, answers)
    assert recorded == (versions, answers), f"the answers differ; {ANSWERS} was rewritten"
