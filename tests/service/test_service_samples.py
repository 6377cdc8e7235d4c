"""Sample files for operators: settings and systemd units."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kreplica.service.broker.settings_maps import admin_listener
from kreplica.settings.broker_settings import BrokerSettings, load
from kreplica.settings.definitions import BROKER_SETTINGS

ROOT = Path(__file__).parents[2]
SETTINGS = sorted((ROOT / "etc/kreplica").glob("*.properties"))
UNITS = sorted((ROOT / "systemd").glob("*.service"))
EXPOSURE_MAX = 1.5
"""Exposure stated in docs/how-to/operations.md, plus a tolerance for other versions of systemd."""


@pytest.mark.parametrize("number", [1, 2, 3])
def test_settings_of_brokers_on_one_host(number: int) -> None:
    """The three files differ in the settings that must differ: broker ID, port and directory."""
    settings = load(ROOT / f"etc/kreplica/broker-{number}.properties")
    assert settings["broker.id"] == number
    assert [endpoint.port for endpoint in settings.listeners] == [9091 + number]
    assert settings.log_dirs == (f"/var/lib/kreplica/broker-{number}",)
    assert settings["default.replication.factor"] == 3
    assert settings["min.insync.replicas"] == 2


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: path.name)
def test_settings_are_valid(path: Path) -> None:
    """Each file is valid without a warning, and has comments."""
    settings = load(path)
    assert settings.warnings == ()
    admin_listener(settings)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("# ") for line in lines) >= 3
    assert all(len(line) <= 120 for line in lines)


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: path.name)
def test_commented_settings_are_valid(path: Path) -> None:
    """A line ``#name=value`` is a valid setting without the ``#``."""
    for line in path.read_text(encoding="utf-8").splitlines():
        name = line.removeprefix("#").partition("=")[0]
        if line.startswith("#") and name in BROKER_SETTINGS:
            BrokerSettings.from_text(
                "broker.id=1\nlisteners=PLAINTEXT://:9092\nzookeeper.connect=z:2181\n", [line.removeprefix("#")]
            )


def test_durable_cluster_settings() -> None:
    """The production file requires two of three replicas for each acknowledgement, for every kind of topic."""
    settings = load(ROOT / "etc/kreplica/production.properties")
    assert settings["broker.rack"]
    for name in ("default", "offsets.topic", "transaction.state.log"):
        assert settings[f"{name}.replication.factor"] == 3
    assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == 2
    assert settings["unclean.leader.election.enable"] is False
    assert len(settings.log_dirs) == 2


def start_command(unit: Path) -> list[str]:
    text = unit.read_text(encoding="utf-8").replace("%i", "1").replace("\\\n", " ")
    (command,) = re.findall(r"^ExecStart=(.*)$", text, flags=re.MULTILINE)
    return command.split()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_refer_to_existing_files(unit: Path) -> None:
    """The command, the options and the settings file that a unit names exist."""
    words = start_command(unit)
    assert words[0].endswith("/.venv/bin/twistd")
    command = words[words.index("kreplica") + 1]
    if command == "broker":
        config = Path(words[words.index("--config") + 1])
        assert (ROOT / "etc/kreplica" / config.name).exists()
    options = [word for word in words[words.index(command) + 1 :] if word.startswith("--")]
    if command == "coordinator":
        options += re.findall(r"--[\w-]+", (ROOT / "etc/kreplica/coordinator.env").read_text().splitlines()[-1])
        assert {"--interface", "--port"} <= set(options)
    twistd = Path(sys.executable).with_name("twistd")
    command_line = [twistd, "kreplica", command, "--help"]
    done = subprocess.run(command_line, cwd=ROOT, capture_output=True, text=True, check=True)
    assert all(option in done.stdout for option in options)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_have_few_permissions(unit: Path) -> None:
    """Units run with their own account, notify systemd, and have minimal permissions."""
    text = unit.read_text(encoding="utf-8")
    for line in ("User=kreplica", "Type=notify", "NotifyAccess=main", "ProtectSystem=strict", "CapabilityBoundingSet="):
        assert f"\n{line}\n" in text, line


def systemd_analyze(*words: str) -> str:
    done = subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.needs_program("systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_analyze_verify(unit: Path, tmp_path: Path) -> None:
    """If the program exists, systemd has no complaint about the unit."""
    copy = tmp_path / unit.name.replace("@", "@1")
    twistd = tmp_path / "twistd"
    twistd.write_text("#!/bin/sh\n")
    twistd.chmod(0o755)
    copy.write_text(unit.read_text().replace("/opt/kreplica/.venv/bin/twistd", str(twistd)))
    output = systemd_analyze("verify", "--recursive-errors=no", "--man=no", str(copy))
    assert [line for line in output.splitlines() if copy.name in line] == []


@pytest.mark.needs_program("systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_analyze_security(unit: Path) -> None:
    """The exposure is about the same as the documented one."""
    output = systemd_analyze("security", "--offline=true", "--no-pager", str(unit))
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", output)
    assert found is not None, output
    assert float(found[1]) <= EXPOSURE_MAX
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text()
    documented = re.search(rf"\| `{re.escape(unit.name)}` \| ([\d.]+) \|", page)
    assert documented is not None
    assert abs(float(documented[1]) - float(found[1])) <= 0.3


@pytest.mark.needs_program("systemctl", "systemd-analyze")
def test_target_of_all_units(tmp_path: Path) -> None:
    """Enabled units are wanted by ``kreplica.target`` and stop with it; brokers stop before the coordinator."""
    target = ROOT / "systemd/kreplica.target"
    copies = tmp_path / "lib/systemd/system"
    copies.mkdir(parents=True)
    for unit in (*UNITS, target):
        text = unit.read_text(encoding="utf-8")
        (copies / unit.name).write_text(text.replace("/opt/kreplica/.venv/bin/twistd", "/bin/true"))
        assert unit == target or "\nPartOf=kreplica.target\n" in text
        assert "broker" not in unit.name or re.search("^After=.*kreplica-coordinator.service", text, re.MULTILINE)
    names = (
        "kreplica.target",
        "kreplica-coordinator.service",
        "kreplica-broker@1.service",
        "kreplica-broker@2.service",
    )
    enabled = subprocess.run(
        ["systemctl", f"--root={tmp_path}", "enable", *names], capture_output=True, text=True, check=False
    )
    assert enabled.returncode == 0, enabled.stderr
    links = {path.name for path in (tmp_path / "etc/systemd/system/kreplica.target.wants").iterdir()}
    assert links == set(names[1:])
    output = systemd_analyze("verify", "--recursive-errors=no", "--man=no", str(copies / target.name))
    assert [line for line in output.splitlines() if target.name in line] == []


def test_more_brokers_on_a_host(tmp_path: Path) -> None:
    """The commands of docs/how-to/operations.md for further brokers write settings files without conflicts."""
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text()
    found = re.search(r"^# (for i in \$\(seq 4 \$\(nproc\)\); do\n(?:>.*\n)+)", page, re.MULTILINE)
    assert found is not None
    script = found[1].replace("\n> ", "\n").replace("$(nproc)", "5").replace("/etc/kreplica", str(tmp_path))
    (tmp_path / "broker-1.properties").write_bytes((ROOT / "etc/kreplica/broker-1.properties").read_bytes())
    subprocess.run(["sh", "-ec", script], check=True)
    for number in (4, 5):
        settings = load(tmp_path / f"broker-{number}.properties")
        assert settings["broker.id"] == number
        assert [endpoint.port for endpoint in settings.listeners] == [9091 + number]
        assert settings.log_dirs == (f"/var/lib/kreplica/broker-{number}",)
        assert settings["zookeeper.connect"] == "127.0.0.1:2181"
        assert settings["broker.rack"] is None


def test_account_and_directories() -> None:
    """sysusers.d creates the units' account, and only that account can read the data."""
    users = (ROOT / "systemd/sysusers.d/kreplica.conf").read_text()
    assert re.search(r'^u kreplica - "kreplica" /var/lib/kreplica /usr/sbin/nologin$', users, re.MULTILINE)
    directories = (ROOT / "systemd/tmpfiles.d/kreplica.conf").read_text()
    assert re.search(r"^d /var/lib/kreplica 0750 kreplica kreplica -$", directories, re.MULTILINE)
