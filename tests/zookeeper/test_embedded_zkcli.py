"""ZooKeeper's own command line, from PySpark's jars, on the embedded coordinator."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from kreplica.zookeeper.java_server import class_path, java_path
from tests.support.coordinator import CoordinatorProcess

MAIN = "org.apache.zookeeper.ZooKeeperMain"
FLAGS = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    with CoordinatorProcess(tmp_path_factory.mktemp("coordinator")) as coordinator:
        yield coordinator


def zkcli(coordinator: CoordinatorProcess, lines: str) -> str:
    """Run zkCli with input lines, and return its output."""
    done = subprocess.run(
        [java_path(), *FLAGS, "-cp", class_path(), MAIN, "-server", coordinator.address, "-waitforconnection"],
        input=lines + "\nquit\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout + done.stderr


def test_zkcli_session(coordinator: CoordinatorProcess) -> None:
    """A session creates, reads and changes znodes, checks versions, and deletes a subtree."""
    output = zkcli(
        coordinator,
        """create /kc first
get /kc
set /kc second
get -s /kc
set -v 7 /kc third
create -s /kc/seq- x
create -e /kc/mine x
create -c /kc/box x
create -t 60000 /kc/mortal x
ls /kc
ls -R /kc
stat /kc
getAcl /kc
getAllChildrenNumber /kc
getEphemerals /kc
sync /kc
whoami
delete /kc
deleteall /kc
stat /kc
ls /
""",
    )
    for expected in (
        "Created /kc\n",
        "\nfirst\n",
        "\nsecond\n",
        "dataVersion = 1",
        "version No is not valid : /kc",
        "Created /kc/seq-0000000000",
        "Created /kc/mine",
        "Created /kc/box",
        "Created /kc/mortal",
        "[box, mine, mortal, seq-0000000000]",
        "\n/kc/box\n",
        "cversion = 4",
        "numChildren = 4",
        "'world,'anyone\n: cdrwa",
        "\n4\n",
        "[/kc/mine]",
        "Sync is OK",
        "Auth scheme: User",
        "Node not empty: /kc",
        "Node does not exist: /kc",
        "\n[zookeeper]\n",
    ):
        assert expected in output, f"{expected!r} is not in:\n{output}"


def test_single_zkcli_command(coordinator: CoordinatorProcess) -> None:
    """A command may be passed as arguments, as scripts do."""
    command = [java_path(), *FLAGS, "-cp", class_path(), MAIN, "-server", coordinator.address, "ls", "/"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    # The message about the connection may be printed before or after the result.
    assert (done.returncode, "[zookeeper]" in done.stdout.splitlines()) == (0, True), done.stdout + done.stderr
