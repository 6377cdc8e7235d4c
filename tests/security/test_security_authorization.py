"""The authorization matrix: each API, called with and without each permission, responds as Apache Kafka does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from authorization_cases import Matrix, properties
from authorization_differences import DIFFERENCES
from authorization_recorded import load
from authorization_table import NOT_SERVED, TABLE
from twisted.internet.threads import deferToThread

from kreplica.runtime import real_runtime
from kreplica.service.composition.broker import Broker
from kreplica.settings import BrokerSettings
from kreplica.wire.messages import APIS
from tests.support.coordinator import CoordinatorProcess
from tests.support.real_reactor import run


def answers_of_kreplica(directory: Path, certificates: Path, connect_string: str) -> dict[str, Any]:
    """Return the answers from a broker in this process."""
    more = {"zookeeper.connect": connect_string, "log.dirs": str(directory / "logs")}
    chosen = {**properties(certificates, {"LOCAL": 0, "TLS": 0}), **more}
    settings = BrokerSettings.from_text("\n".join(f"{name}={value}" for name, value in chosen.items()))
    versions, _ = load()

    async def main() -> dict[str, Any]:
        from twisted.internet import reactor

        broker = Broker(real_runtime(reactor), settings)
        try:
            await broker.start()
            answers: dict[str, Any] = await deferToThread(Matrix(broker._ports, versions, certificates).run)
            return answers
        finally:
            await broker.stop()
            broker.runtime.offload.stop()

    return run(main(), 200, check_left_behind=False)


def test_answers(tmp_path: Path, certificates: Path, coordinator: CoordinatorProcess) -> None:
    """Each answer is that of Apache Kafka 3.9.1, or one of the listed differences."""
    own = answers_of_kreplica(tmp_path, certificates, coordinator.address)
    _, theirs = load()
    assert set(own) == set(theirs), "the table has changed: record Apache Kafka's answers again"
    used = set()
    for case, answer in own.items():
        if answer == theirs[case]:
            continue
        explained = [each for each in DIFFERENCES if each.covers(case, answer)]
        assert explained, f"{case}:\nkreplica {answer}\nKafka    {theirs[case]}"
        used.update(explained)
    assert used == set(DIFFERENCES)


def test_documented_differences() -> None:
    """The documentation lists each difference with its reason."""
    page = (Path(__file__).resolve().parents[2] / "docs/reference/kafka-compatibility.md").read_text()
    assert [each.row for each in DIFFERENCES if each.row not in page] == []


def test_table_is_complete() -> None:
    """The table has an entry for each API that kreplica knows."""
    assert {entry.api.key for entry in TABLE} == set(APIS)
    assert not {entry.api.key for entry in TABLE} & set(NOT_SERVED)
