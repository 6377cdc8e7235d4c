"""The settings file of the embedded ZooKeeper server."""

from __future__ import annotations

from pathlib import Path

import pytest

from kreplica.errors import SettingsError
from kreplica.settings.zookeeper_settings import load_zookeeper_settings

LISTENER = "kreplica.coordinator.ssl.listener"
PROTOCOLS = "kreplica.coordinator.ssl.enabled.protocols"
ANONYMOUS = "kreplica.coordinator.anonymous.clients"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "coordinator.properties"


def test_defaults() -> None:
    """Without a file, there is no TLS, and only local clients may be anonymous."""
    values = load_zookeeper_settings(None)
    assert (values[LISTENER], values[ANONYMOUS], values[PROTOCOLS]) == ("", "local", ("TLSv1.2", "TLSv1.3"))


def test_override_takes_precedence(file: Path) -> None:
    file.write_text(f"# a comment\n{LISTENER}=0.0.0.0:2182\n{PROTOCOLS}=TLSv1.3\n{ANONYMOUS}=none\n")
    values = load_zookeeper_settings(str(file), [f"{LISTENER}=127.0.0.1:2183", f" {ANONYMOUS} = all"])
    assert (values[LISTENER], values[ANONYMOUS], values[PROTOCOLS]) == ("127.0.0.1:2183", "all", ("TLSv1.3",))


def test_override_without_value() -> None:
    """An override without a value is an error, not an empty value."""
    with pytest.raises(SettingsError, match=f"--override {LISTENER}: expected name=value"):
        load_zookeeper_settings(None, [LISTENER])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (f"\n{ANONYMOUS}=some", "line 2: kreplica.coordinator.anonymous.clients: 'some' is not allowed; expected"),
        (f"{PROTOCOLS}=SSLv3", "line 1: kreplica.coordinator.ssl.enabled.protocols: 'SSLv3' is not allowed"),
        ("broker.id=1", "line 1: broker.id is not a setting of the embedded ZooKeeper server."),
        ("kreplica.coordinator.ssl.listeners=a:1", f"Did you mean {LISTENER}?"),
    ],
)
def test_invalid_line(file: Path, lines: str, message: str) -> None:
    """The error names the file, the line, and the nearest setting."""
    file.write_text(lines)
    with pytest.raises(SettingsError) as caught:
        load_zookeeper_settings(str(file))
    assert str(file) in str(caught.value)
    assert message in str(caught.value)
