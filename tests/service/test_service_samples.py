"""The sample files that operators copy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kreplica.settings.broker_settings import load

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "systemd").glob("*.service"))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_brokers_of_one_host(number: int) -> None:
    """Three files that differ where brokers must: number, port and directory; each starts without a warning."""
    settings = load(ROOT / f"etc/kreplica/broker-{number}.properties")
    assert settings.warnings == ()
    assert settings["broker.id"] == number
    assert [endpoint.port for endpoint in settings.listeners] == [9091 + number]
    assert settings.log_dirs == (f"/var/lib/kreplica/broker-{number}",)
    assert settings["default.replication.factor"] == 3
    assert settings["min.insync.replicas"] == 2


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_run_what_there_is(unit: Path) -> None:
    """The command, its options and the file that a unit names are there."""
    text = unit.read_text(encoding="utf-8").replace("%i", "1").replace("\\\n", " ")
    (command,) = re.findall(r"^ExecStart=(.*)$", text, flags=re.MULTILINE)
    words = command.split()
    assert words[0].endswith("/.venv/bin/twistd")
    config = Path(words[words.index("--config") + 1])
    assert (ROOT / "etc/kreplica" / config.name).exists()
    asked = [word for word in words[words.index("broker") + 1 :] if word.startswith("--")]
    twistd = Path(sys.executable).with_name("twistd")
    command_line = [twistd, "kreplica", "broker", "--help"]
    helped = subprocess.run(command_line, cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(option in helped.stdout for option in asked)
