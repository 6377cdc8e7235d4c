"""Starting and stopping a process, and common mistakes, each with a one-line error."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.server_process import free_ports
from tests.support.standalone import StandaloneProcess

TWISTD = str(Path(sys.executable).with_name("twistd"))


def run_failing(*arguments, cwd, status=1):
    """Run a command that must fail, and return its output."""
    done = subprocess.run(
        [TWISTD, "-n", "--pidfile=", "kreplica", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def taken_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--port", "listeners"),
        ("--admin-port", "--admin-port"),
        ("--zookeeper-port", "--zookeeper-port"),
    ],
)
def test_port_in_use(tmp_path, taken_port, option, expected):
    """The error names the port, and the option or setting that selects another one."""
    ports = dict(zip(("--port", "--admin-port", "--zookeeper-port"), free_ports(3), strict=True))
    ports[option] = taken_port
    words = [str(word) for pair in ports.items() for word in pair]
    output = run_failing("standalone", "--data-dir", tmp_path / "data", *words, cwd=tmp_path)
    assert f":{taken_port}" in output
    assert expected in output


def test_data_directory_in_use(tmp_path):
    """A second process on the same directory fails, and the first continues."""
    with StandaloneProcess(tmp_path) as first:
        ports = free_ports(3)
        output = run_failing(
            "standalone", "--data-dir", first.data_directory,
            "--port", ports[0], "--admin-port", ports[1], "--zookeeper-port", ports[2], cwd=tmp_path,
        )  # fmt: skip
        assert str(first.data_directory) in output
        assert "in use" in output
        with urllib.request.urlopen(f"{first.admin_url}/health/ready") as response:
            assert json.load(response) == {"status": "ready"}


def test_lost_data_of_the_coordinator(tmp_path):
    """A process with logs but without its coordinator's data does not start; the error names the logs' cluster."""
    process = StandaloneProcess(tmp_path).start()
    process.stop()
    shutil.rmtree(process.data_directory / "coordinator")
    meta = (process.data_directory / "broker-1" / "meta.properties").read_text()
    cluster_id = re.search(r"cluster.id=(\S+)", meta)[1]
    output = run_failing("standalone", "--data-dir", process.data_directory, cwd=tmp_path)
    assert cluster_id in output
    assert not (process.data_directory / "coordinator").exists()


def test_unknown_setting(tmp_path):
    """The error suggests the nearest setting."""
    output = run_failing("standalone", "--data-dir", tmp_path / "data", "--override", "num.partition=3", cwd=tmp_path)
    assert "num.partition" in output
    assert "num.partitions" in output


def test_invalid_line_in_the_settings_file(tmp_path):
    """The error names the file, its line, the value, and the allowed values."""
    path = tmp_path / "broker.properties"
    path.write_text("broker.id=1\nzookeeper.connect=127.0.0.1:1\n\nnum.partitions=many\n")
    output = run_failing("broker", "--config", path, cwd=tmp_path)
    assert f"{path}, line 4" in output
    assert "'many'" in output
    assert "whole number" in output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "standalone, broker or coordinator"),
        (("broker",), "--config FILE is required"),
        (("standalone", "--port", "http"), "is not a port"),
        (("standalone", "--brokers", "0"), "is not a number of brokers"),
        (("standalone", "--log-format", "xml"), "text or json"),
        (("standalone", "--override", "x"), "name=value"),
        (("broker", "--child-of", "me"), "is not a process ID"),
    ],
)
def test_invalid_option(tmp_path, arguments, expected):
    assert expected in run_failing(*arguments, cwd=tmp_path)


def test_unreachable_zookeeper(tmp_path):
    """The error names the ZooKeeper server."""
    path = tmp_path / "broker.properties"
    (port,) = free_ports(1)
    path.write_text(
        f"broker.id=1\nzookeeper.connect=127.0.0.1:{port}\nzookeeper.connection.timeout.ms=500\n"
        f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/logs\n"
    )
    assert f"127.0.0.1:{port}" in run_failing("broker", "--config", path, cwd=tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_orderly_stop(tmp_path, number):
    """After SIGTERM or Ctrl-C, the directory contains its clean-shutdown marker, which the next start removes."""
    process = StandaloneProcess(tmp_path).start()
    process.stop(number=number)
    assert "Traceback" not in process.output
    marker = json.loads((process.data_directory / "broker-1" / ".kafka_cleanshutdown").read_text())
    assert marker["brokerEpoch"] > 0
    process.start()
    assert not (process.data_directory / "broker-1" / ".kafka_cleanshutdown").exists()
    process.kill()


def test_json_log(tmp_path):
    """With ``--log-format json``, each log line is a JSON object with level, logger, message and fields."""
    with StandaloneProcess(tmp_path, arguments=("--log-format", "json")) as process:
        lines = [json.loads(line) for line in process.output.splitlines() if line.startswith("{")]
    joined = next(line for line in lines if "has joined" in line["message"])
    assert joined["level"] == "info"
    assert joined["logger"].startswith("kreplica.")
    assert joined["fields"]["broker"] == 1


def test_health(tmp_path):
    """The admin port has a liveness and a readiness check; unknown paths return 404."""
    with StandaloneProcess(tmp_path) as process:
        for path in ("live", "ready"):
            with urllib.request.urlopen(f"{process.admin_url}/health/{path}") as response:
                assert json.load(response) == {"status": path}
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{process.admin_url}/nothing")


def test_coordinator_and_broker_processes(tmp_path):
    """``coordinator`` and ``broker`` run in two processes, and the broker connects to the coordinator."""
    coordinator_port, port, admin_port = free_ports(3)
    coordinator = subprocess.Popen(
        [TWISTD, "-n", "--pidfile=", "kreplica", "coordinator", "--port", str(coordinator_port), "-d", "znodes"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
    )
    path = tmp_path / "broker.properties"
    path.write_text(
        f"broker.id=7\nzookeeper.connect=127.0.0.1:{coordinator_port}/chroot\nlisteners=PLAINTEXT://127.0.0.1:{port}\n"
        f"log.dirs={tmp_path}/logs\nkreplica.admin.listener=127.0.0.1:{admin_port}\n"
    )
    broker = None
    try:
        assert b"is ready" in coordinator.stdout.readline()
        broker = subprocess.Popen(
            [TWISTD, "-n", "--pidfile=", "kreplica", "broker", "--config", str(path)],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
        )
        lines = []
        while not lines or b"is ready" not in lines[-1]:
            lines.append(broker.stderr.readline())
            assert lines[-1], b"".join(lines)
        with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/health/ready") as response:
            assert json.load(response) == {"status": "ready"}
    finally:
        for process in filter(None, (broker, coordinator)):
            process.terminate()
            process.communicate(timeout=30)
