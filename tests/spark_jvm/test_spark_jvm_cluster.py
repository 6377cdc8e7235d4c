"""A pipeline on a Spark cluster, with master and worker of Spark's standalone mode as separate processes.

These tests take more than a minute, so they are soak tests.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from kreplica.blocking import Cluster, Producer
from kreplica.spark.session import java_home
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
COUNT = 500
STARTED_S_MAX = 240


def spark_home() -> Path:
    """The directory of the installed pyspark."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def environment() -> dict[str, str]:
    """Environment variables for Spark on loopback, without Spark variables of the test's process."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    daemons = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false"}
    return {**inherited, **daemons, "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": str(java_home())}


class Daemon:
    """A master or worker process whose output is written to a file."""

    def __init__(self, directory: Path, name: str, *arguments: str) -> None:
        self._path = directory / f"{name}.log"
        main = f"org.apache.spark.deploy.{name}.{name.capitalize()}"
        listen = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        command = ["bash", str(spark_home() / "bin" / "spark-class"), main, *listen, *arguments]
        with self._path.open("wb") as output:
            self._process = subprocess.Popen(
                command, env={**environment(), "SPARK_WORKER_DIR": str(directory)}, stdout=output, stderr=output
            )

    def wait_for(self, pattern: str) -> str:
        """Wait until the output matches a pattern, and return the pattern's first group."""
        end = time.monotonic() + STARTED_S_MAX
        while time.monotonic() < end and self._process.poll() is None:
            found = re.search(pattern, self._path.read_text())
            if found:
                return found[1]
            time.sleep(0.2)
        raise AssertionError(self._path.read_text()[-3000:])

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(60)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The master's address of a Spark cluster with one worker."""
    directory = tmp_path_factory.mktemp("cluster")
    with ExitStack() as daemons:
        first = Daemon(directory, "master")
        daemons.callback(first.stop)
        address = first.wait_for(r"Starting Spark master at (spark://\S+)")
        worker = Daemon(directory, "worker", "--cores", "2", "--memory", "1g", address)
        daemons.callback(worker.stop)
        worker.wait_for(r"(Successfully registered) with master")
        yield address


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Bootstrap servers of a cluster with a topic."""
    with KafkaCluster(3, topics={"profiled": 2}) as cluster:
        with Cluster(cluster.bootstrap_servers) as client, Producer(client) as producer:
            for number in range(COUNT):
                producer.send("profiled", b"v" * 100, key=b"%d" % (number % 5))
        yield cluster.bootstrap_servers


def run(command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    variables = {**environment(), **more}
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600, check=False)


def test_command_with_a_master(master: str, bootstrap: str) -> None:
    """With ``--master``, the command gives the same result as on one machine."""
    program = str(Path(sys.executable).with_name("kreplica"))
    done = run([program, "pipeline", "profile", "profiled", "--bootstrap", bootstrap, "--master", master, "--json"])
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["records"] == COUNT
    assert report["topics"][0]["keys"]["distinct"] == 5


@pytest.mark.parametrize("is_sent", [True, False])
def test_submitted_to_workers_without_the_package(master: str, bootstrap: str, tmp_path: Path, is_sent: bool) -> None:
    """Workers run the package that is sent as a zip file; without it, the error states that it is missing."""
    packages = str(Path(find_spec("pyarrow").origin).parents[1])  # type: ignore[union-attr, arg-type]
    venv.create(tmp_path / "venv")
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    # Python does not read .pth files of a directory in PYTHONPATH, where an editable installation may be found.
    (site / "packages.pth").write_text(packages)
    with zipfile.ZipFile(tmp_path / "kreplica.zip", "w") as packed:
        for path in [*ROOT.glob("kreplica/**/*.py"), *ROOT.glob("pyspark_kreplica/**/*.py")]:
            packed.write(path, path.relative_to(ROOT))
    pythons = {"driver.python": sys.executable, "python": str(tmp_path / "venv" / "bin" / "python")}
    settings = [word for name, value in pythons.items() for word in ("--conf", f"spark.pyspark.{name}={value}")]
    files = ["--py-files", str(tmp_path / "kreplica.zip")] if is_sent else []
    module = str(ROOT / "kreplica" / "cli" / "pipelines" / "pipeline_profile.py")
    submit = ["bash", str(spark_home() / "bin" / "spark-submit"), "--master", master, *settings, *files]
    done = run([*submit, module, "profiled", "--bootstrap", bootstrap])
    if is_sent:
        assert done.returncode == 0, done.stderr[-3000:]
        assert re.search(rf"^profiled +2 +{COUNT} ", done.stdout, re.MULTILINE)
    else:
        assert done.returncode == 1
        assert "No module named 'kreplica' where Spark's tasks run" in done.stdout + done.stderr
