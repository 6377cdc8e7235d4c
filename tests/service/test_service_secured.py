"""A secured standalone cluster: the README's steps, private files, and restarts."""

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
from kazoo.client import KazooClient
from kazoo.exceptions import SessionClosedRequireSaslError

from kreplica.errors import SettingsError
from kreplica.service.process.options import StandaloneOptions
from kreplica.service.standalone.secured import SecuredCluster

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "README.md").read_text().split("## Secure the cluster\n")[1].split("\n## ")[0]
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", SECTION, re.S)
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
TIMEOUT_S = 60
ZOOKEEPER = "127.0.0.1:2181"
README_ADDRESSES = {"brokers": "127.0.0.1:9092", "admin": "127.0.0.1:8080", "zookeeper": ZOOKEEPER}
"""Addresses in the README, by their names in the banner."""
BROKER_CLIENT = """
import random, sys
from twisted.internet.task import react
from kreplica.zookeeper import Permission, SaslCredentials, ZooKeeperClient, ZooKeeperError

async def main(reactor, address, password):
    client = ZooKeeperClient(reactor, address, random=random.Random(1), sasl=SaslCredentials("broker", password))
    try:
        await client.start()
        print(await client.exists("/stolen"))
        acls, _ = await client.get_acl("/controller_epoch")
        for acl in acls:
            print(acl.scheme, acl.id, "write" if acl.permissions & Permission.WRITE else "read")
        await client.close()
    except ZooKeeperError as error:
        print(type(error).__name__)

react(main, sys.argv[1:])
"""
"""Prints, as the brokers' user, the stat of one znode and the ACL of another, or the name of the error."""


@contextmanager
def secured_cluster(directory: Path) -> Iterator[dict[str, str]]:
    """Run ``standalone --secured`` on ports that the system chooses.

    :return: address in the README -> address in the banner.
    """
    ports = ["--port", "0", "--admin-port", "0", "--zookeeper-port", "0", "--data-dir", str(directory)]
    command = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=", "kreplica", "standalone", "--secured"]
    with subprocess.Popen([*command, *ports], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found: dict[str, str] = {}
            for line in process.stdout:
                match = re.match(r"  (brokers|admin|zookeeper) +(?:https://)?(\S+?)/? ", line)
                if match is not None:
                    found[README_ADDRESSES[match[1]]] = match[2]
                if line.startswith("  Topics are created"):
                    break
            assert found.keys() == {*README_ADDRESSES.values()}
            yield found
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(TIMEOUT_S)


def with_addresses(text: str, addresses: dict[str, str]) -> str:
    """Replace the README's addresses in commands or a program by those of a cluster."""
    for readme_address, address in addresses.items():
        text = text.replace(readme_address, address)
    return text


def run(command: list[str], directory: Path) -> str:
    done = subprocess.run(
        command, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_readme_steps(tmp_path: Path) -> None:
    """The steps succeed, even after a restart; without credentials, commands fail."""
    start, shell, program = (text for _, text in BLOCKS)
    assert start == "make run ARGS='--secured --data-dir locked'\n"
    shell = "\n".join(line for line in shell.splitlines() if not line.startswith("export PATH"))
    environment = "export KREPLICA_ADMIN=https://127.0.0.1:8080 KREPLICA_CA_FILE=locked/security/ca.pem\n"
    with secured_cluster(tmp_path / "locked") as addresses:
        printed = run(["bash", "-ec", with_addresses(environment + shell, addresses)], tmp_path)
        assert "User alice was created" in printed
        assert "User:alice may Write topic 'payments': an ACL allows it." in printed
        printed = run([sys.executable, "-c", with_addresses(program, addresses)], tmp_path)
        assert printed == "b'four euros'\n"
    for path in (tmp_path / "locked" / "security").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    with secured_cluster(tmp_path / "locked") as addresses:
        commands = with_addresses(environment, addresses) + "kreplica topic list"
        done = subprocess.run(
            ["bash", "-ec", commands], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 1
        assert "no credentials" in done.stderr
        admin = "export KREPLICA_USER=admin KREPLICA_PASSWORD_FILE=locked/security/admin-password\n"
        assert "payments" in run(["bash", "-ec", admin + commands], tmp_path)
        token = (
            with_addresses(environment, addresses)
            + admin
            + "kreplica token create --owner User:alice --client-config job"
        )
        assert "User:alice" in run(["bash", "-ec", token], tmp_path)
        assert 'tokenauth="true"' in (tmp_path / "job").read_text()


def test_coordinator_requires_the_secret(tmp_path: Path) -> None:
    """A local program without the secret can neither create nor change znodes."""
    with secured_cluster(tmp_path / "locked") as addresses:
        client = KazooClient(addresses[ZOOKEEPER], timeout=TIMEOUT_S)
        client.start(timeout=TIMEOUT_S)
        try:
            with pytest.raises(SessionClosedRequireSaslError):
                client.create("/stolen", b"1")
        finally:
            client.stop()
            client.close()
        program = [sys.executable, "-c", BROKER_CLIENT, addresses[ZOOKEEPER]]
        assert run([*program, "wrong"], tmp_path) == "AuthFailed\n"
        secret = (tmp_path / "locked" / "security" / "coordinator-password").read_text().strip()
        stolen, *acls = run([*program, secret], tmp_path).splitlines()
        assert stolen == "None"
        assert [each for each in acls if " write" in each] == ["sasl broker write"]


def test_damaged_secret(tmp_path: Path) -> None:
    """A secret that could end a quoted value is refused, and the error names its file."""
    SecuredCluster(tmp_path, "127.0.0.1")
    (tmp_path / "broker-password").write_text('x" user_eve="y')
    with pytest.raises(SettingsError, match="broker-password must contain one word"):
        SecuredCluster(tmp_path, "127.0.0.1")


def test_secured_processes_are_refused() -> None:
    from twisted.python.usage import UsageError

    with pytest.raises(UsageError, match="--secured and --processes cannot be combined"):
        StandaloneOptions().parseOptions(["--secured", "--processes"])
