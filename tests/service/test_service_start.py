"""``kreplica start``, ``stop`` and ``status``."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kreplica.blocking import Cluster, Producer, ProducerOptions
from kreplica.service.standalone.data_directory_lock import PID_FILE, STATE_FILE, running_pid
from tests.support.kreplica_command import kreplica_command, port_options, processes_of, run_kreplica

TWISTD = str(Path(sys.executable).with_name("twistd"))
ENDED_S_MAX = 30.0


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory; its cluster, if any, is killed at the end."""
    directory = tmp_path / "data"
    yield directory
    for pid in processes_of(directory):
        os.kill(pid, signal.SIGKILL)


def start(data: Path, *words: object, brokers: int = 1) -> str:
    """Start a cluster in the background, and return the command's output."""
    done = run_kreplica("start", "--background", "--data-dir", data, *port_options(brokers), *words, cwd=data.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def status(data: Path) -> dict:
    done = run_kreplica("status", "--data-dir", data, "--json", cwd=data.parent)
    document = json.loads(done.stdout)
    assert done.returncode == (0 if document["state"] == "ready" else 1), done.stderr
    return document


def run_failing(*words: object, cwd: Path) -> str:
    """Run a command that must fail without output, and return its error."""
    done = run_kreplica(*words, cwd=cwd)
    assert (done.returncode, done.stdout) == (1, ""), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def wait_until_gone(data: Path) -> None:
    deadline_s = time.monotonic() + ENDED_S_MAX
    while processes_of(data):
        assert time.monotonic() < deadline_s, processes_of(data)
        time.sleep(0.02)


def test_background_cluster(data: Path) -> None:
    """``start`` prints addresses and the stop command, ``status`` shows the process, ``stop`` ends it in order."""
    printed = start(data)
    state = status(data)
    assert f"  brokers      {state['bootstrap_servers'][0]} " in printed
    assert f"  admin        {state['admin_url']}/ " in printed
    assert f"  data         {data}\n" in printed
    assert f"  log          {data}/kreplica.log\n" in printed
    assert f"  stop         kreplica stop --data-dir {data}\n" in printed
    assert (state["state"], state["cluster"]["live_brokers"]) == ("ready", [1])
    assert running_pid(data) == state["pid"]
    assert (data / "kreplica.log").stat().st_mode & 0o077 == 0
    output = run_kreplica("status", "--data-dir", data, cwd=data.parent).stdout
    assert re.search(r"^health +1 live broker; 0 partitions, all available and in sync$", output, re.MULTILINE), output

    in_use = f"{data} is in use by the cluster with process ID {state['pid']}"
    assert in_use in run_failing("start", "--data-dir", data, *port_options(), cwd=data.parent)
    assert in_use in run_failing("start", "--background", "--data-dir", data, *port_options(), cwd=data.parent)
    words = [TWISTD, "-n", "--pidfile=", "kreplica", "standalone", f"--data-dir={data}", *map(str, port_options())]
    done = subprocess.run(words, cwd=data.parent, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert in_use in done.stderr
    assert status(data) == state, "the first cluster continues"

    done = run_kreplica("stop", "--data-dir", data, cwd=data.parent)
    assert re.fullmatch(rf"Stopped the cluster in {data} \(process {state['pid']}\) in [\d.]+ s\.\n", done.stdout)
    assert not processes_of(data)
    assert (data / "broker-1" / ".kafka_cleanshutdown").exists()
    assert not (data / PID_FILE).exists()
    assert not (data / STATE_FILE).exists()
    assert status(data)["state"] == "stopped"
    assert run_failing("stop", "--data-dir", data, cwd=data.parent) == f"kreplica: no cluster is running in {data}\n"


@pytest.mark.parametrize("words", [(), ("--processes", "--brokers", "2")], ids=["one", "processes"])
def test_start_after_kill_9(data: Path, words: tuple[str, ...]) -> None:
    """No process outlives the parent; ``status`` and ``stop`` explain the state; the next start has all records."""
    start(data, *words, brokers=2)
    killed = status(data)
    done = run_kreplica("topic", "create", "orders", "--admin", killed["admin_url"], cwd=data.parent)
    assert done.returncode == 0, done.stderr
    with Cluster(killed["bootstrap_servers"][0]) as cluster, Producer(cluster, ProducerOptions(acks=-1)) as producer:
        sent = producer.send("orders", b"tea")
        producer.flush()
        assert sent.offset == 0
    os.kill(killed["pid"], signal.SIGKILL)
    wait_until_gone(data)
    stale = f"no cluster is running in {data}: its process {killed['pid']} exited without a clean shutdown"
    assert stale in run_kreplica("status", "--data-dir", data, cwd=data.parent).stdout
    assert stale in run_failing("stop", "--data-dir", data, cwd=data.parent)

    start(data, *words, brokers=2)
    restarted = status(data)
    assert restarted["pid"] != killed["pid"]
    words = ("consume", "orders", "--bootstrap", restarted["bootstrap_servers"][0])
    assert run_kreplica(*words, cwd=data.parent).stdout == "tea\n"
    assert run_kreplica("stop", "--data-dir", data, cwd=data.parent).returncode == 0
    assert not processes_of(data)


def test_process_id_of_another_program(data: Path) -> None:
    """A program that has the process ID of a killed cluster is not stopped, and does not prevent a start."""
    data.mkdir()
    with subprocess.Popen(["sleep", "600"]) as other:
        (data / PID_FILE).write_text(f"{other.pid}\n")
        try:
            assert "no process was stopped" in run_failing("stop", "--data-dir", data, cwd=data.parent)
            assert status(data)["state"] == "stopped"
            start(data)
            assert other.poll() is None
        finally:
            other.kill()
    assert status(data)["state"] == "ready"


def test_suspended_cluster(data: Path) -> None:
    """``status`` does not wait for a suspended cluster, and ``stop`` ends it."""
    start(data)
    pid = status(data)["pid"]
    os.kill(pid, signal.SIGSTOP)
    document = status_of_suspended(data)
    assert "no response from" in document["problem"]
    done = run_kreplica("stop", "--data-dir", data, cwd=data.parent)
    assert done.returncode == 0, done.stderr


def status_of_suspended(data: Path) -> dict:
    done = run_kreplica("status", "--data-dir", data, "--json", cwd=data.parent)
    assert done.returncode == 1
    return json.loads(done.stdout)


def test_failed_start_in_the_background(data: Path) -> None:
    """The command prints the reason instead of leaving it in the log."""
    words = ("start", "--background", "--data-dir", data, *port_options(), "--override", "num.partition=3")
    error = run_failing(*words, cwd=data.parent)
    assert error.startswith("kreplica: ")
    assert "num.partitions" in error
    assert f"complete log: {data}/kreplica.log" in error


BANNER = ["brokers", "admin", "zookeeper", "data", "python", "stop"]


def test_foreground(data: Path) -> None:
    """The first output lines contain the addresses; the cluster is stopped by Ctrl-C, or by ``stop``."""
    for end in ("Ctrl-C", "kreplica stop"):
        words = kreplica_command("start", "--data-dir", data, *port_options())
        with subprocess.Popen(words, cwd=data.parent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            try:
                lines = [process.stdout.readline().decode() for _ in range(8)]
                assert lines[0].endswith("is ready\n")
                assert [line.split()[0] for line in lines[2:]] == BANNER
            except BaseException:
                process.kill()
                raise
            if end == "Ctrl-C":
                process.send_signal(signal.SIGINT)
            else:
                assert run_kreplica("stop", "--data-dir", data, cwd=data.parent).returncode == 0
            process.communicate(timeout=30)
        assert (data / "broker-1" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_data_directory_that_is_a_file(tmp_path: Path, place: str) -> None:
    """``start`` and ``coordinator`` report in one line that the path is a file."""
    (tmp_path / "file").write_text("")
    path = tmp_path / place
    expected = f"kreplica: --data-dir {path}: {tmp_path}/file is a file, not a directory; choose another --data-dir\n"
    assert run_failing("start", "--background", "--data-dir", path, cwd=tmp_path) == expected
    assert run_failing("start", "--data-dir", path, cwd=tmp_path) == expected
    words = [TWISTD, "-n", "--pidfile=", "kreplica", "coordinator", "--data-dir", str(path)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == expected.strip()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--brokers", "0"), "Error: Invalid value for '--brokers' / '-n': '0' is not a number of brokers (1 to 100)"),
        (("--port", "http"), "Error: Invalid value for '--port' / '-p': 'http' is not a port"),
        (("--secured", "--processes"), "Error: --secured and --processes cannot be combined"),
        (("--override", "x"), "Error: --override 'x': expected name=value"),
        (("--broker", "3"), "Error: No such option '--broker'. (Did you mean one of: '--brokers'"),
    ],
)
def test_invalid_option(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    """The error names the option, and is printed without the help text."""
    done = run_kreplica("start", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) <= 4
    assert not list(tmp_path.iterdir())


def twistd(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TWISTD, *words], capture_output=True, text=True, timeout=60, check=False)


def test_usage_of_twistd() -> None:
    """The usage line names each program once; an error is printed without the help text."""
    usage = twistd("kreplica", "--help").stdout.splitlines()[0]
    assert usage == "Usage: twistd [twistd options] kreplica standalone|broker|coordinator [options]"
    for command in ("standalone", "broker", "coordinator"):
        help_text = twistd("kreplica", command, "--help").stdout
        assert help_text.splitlines()[0] == f"Usage: twistd [twistd options] kreplica {command} [options]"
    done = twistd("-n", "kreplica", "standalone", "--brokers", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "kreplica: '0' is not a number of brokers (1 to 100)\nSee `twistd kreplica standalone --help`.\n"
    )
