"""A secured standalone cluster: the README's steps, files that only the owner can read, and restarts."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kreplica.errors import SettingsError
from kreplica.service.process.options import StandaloneOptions
from kreplica.service.standalone.secured import SecuredCluster

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "README.md").read_text().split("## Lock it\n")[1].split("\n## ")[0]
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", SECTION, re.S)
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
TIMEOUT_S = 60


@contextmanager
def secured_cluster(directory: Path) -> Iterator[dict[str, str]]:
    """Run ``standalone --secured`` on ports that the system chooses.

    :return: the addresses in the banner, by the ports on the page.
    """
    ports = ["--port", "0", "--admin-port", "0", "--coordinator-port", "0", "--data-dir", str(directory)]
    command = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=", "kreplica", "standalone", "--secured"]
    with subprocess.Popen([*command, *ports], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found: dict[str, str] = {}
            for line in process.stdout:
                match = re.match(r"  (brokers|admin) +(?:https://)?(\S+?)/? ", line)
                if match is not None:
                    found["127.0.0.1:9092" if match[1] == "brokers" else "127.0.0.1:8080"] = match[2]
                if line.startswith("  Topics are created"):
                    break
            assert len(found) == 2
            yield found
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(TIMEOUT_S)


def moved(text: str, addresses: dict[str, str]) -> str:
    """Return commands or a program of the page with the addresses of a cluster."""
    for shown, own in addresses.items():
        text = text.replace(shown, own)
    return text


def run(command: list[str], directory: Path) -> str:
    done = subprocess.run(
        command, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_the_steps_of_the_readme(tmp_path: Path) -> None:
    """They succeed, also after a restart; without credentials, nothing is shown."""
    start, shell, program = (text for _, text in BLOCKS)
    assert start == "make run ARGS='--secured --data-dir locked'\n"
    shell = "\n".join(line for line in shell.splitlines() if not line.startswith("export PATH"))
    environment = "export KREPLICA_ADMIN=https://127.0.0.1:8080 KREPLICA_CA_FILE=locked/security/ca.pem\n"
    with secured_cluster(tmp_path / "locked") as addresses:
        printed = run(["bash", "-ec", moved(environment + shell, addresses)], tmp_path)
        assert "User alice was created" in printed
        assert "User:alice may write on topic 'payments': an ACL allows it." in printed
        printed = run([sys.executable, "-c", moved(program, addresses)], tmp_path)
        assert printed == "b'four euros'\n"
    for path in (tmp_path / "locked" / "security").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    with secured_cluster(tmp_path / "locked") as addresses:
        commands = moved(environment, addresses) + "kreplica topic list"
        done = subprocess.run(
            ["bash", "-ec", commands], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 1
        assert "no credentials" in done.stderr
        admin = "export KREPLICA_USER=admin KREPLICA_PASSWORD_FILE=locked/security/admin-password\n"
        assert "payments" in run(["bash", "-ec", admin + commands], tmp_path)


def test_damaged_secret(tmp_path: Path) -> None:
    """A secret that could end a quoted value is refused, with its path."""
    SecuredCluster(tmp_path, "127.0.0.1")
    (tmp_path / "broker-password").write_text('x" user_eve="y')
    with pytest.raises(SettingsError, match="broker-password must contain one word"):
        SecuredCluster(tmp_path, "127.0.0.1")


def test_secured_processes_are_refused() -> None:
    from twisted.python.usage import UsageError

    with pytest.raises(UsageError, match="--secured and --processes cannot be combined"):
        StandaloneOptions().parseOptions(["--secured", "--processes"])
