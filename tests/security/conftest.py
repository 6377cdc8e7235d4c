"""Fixtures for the tests with real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sasl_scene import PASSWORDS
from twisted.logger import formatEvent, globalLogPublisher

from kreplica.security.tls.development_ca import create_certificate, open_authority
from tests.support.coordinator import CoordinatorProcess


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    authority = open_authority(directory, 10)
    create_certificate(directory, authority, "broker", ["127.0.0.1"], 10)
    create_certificate(directory, authority, "alice", [], 10)
    open_authority(directory / "other", 10)
    return directory


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[CoordinatorProcess]:
    with CoordinatorProcess(tmp_path / "coordinator") as process:
        yield process


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The messages of all log events; they must not contain secrets."""
    texts: list[str] = []

    def observe(event: Any) -> None:
        texts.append(f"{formatEvent(event)} {event.get('log_failure', '')}")

    globalLogPublisher.addObserver(observe)
    yield texts
    globalLogPublisher.removeObserver(observe)
    assert not [text for text in texts for secret in PASSWORDS.values() if secret in text]
