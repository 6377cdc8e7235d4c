"""Apache Kafka from Maven: its tools and a broker with its own ZooKeeper, for comparison.

``make test`` needs neither Java nor Maven: without them, the tests that use this module are skipped with the reason.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

KAFKA_VERSION = "3.9.1"
NEWEST_VERSION = "4.3.1"
"""The newest version that is complete in Maven; only its server is needed."""

JARS = Path(__file__).resolve().parents[2] / "build" / f"kafka-{KAFKA_VERSION}"

_TOOLS = (f"kafka_2.13:{KAFKA_VERSION}", f"kafka-tools:{KAFKA_VERSION}")
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>local</groupId><artifactId>kafka-jars</artifactId><version>1</version><dependencies>
{}
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class NoKafka(Exception):
    """Kafka's jars are not available here; the message names the missing program."""


def class_path() -> str:
    """Return Kafka's class path; its jars are downloaded once with Maven.

    :raise NoKafka: Java is missing, or Maven and the jars are missing.
    """
    return _class_path(JARS, _TOOLS)


def server_class_path(version: str) -> str:
    """Return the class path of Kafka's server of a version.

    :raise NoKafka: as ``class_path``.
    """
    if version == KAFKA_VERSION:
        return class_path()
    return _class_path(JARS.with_name(f"kafka-{version}"), (f"kafka_2.13:{version}",))


def tools_class_path(version: str) -> str:
    """Return the class path of Kafka's command-line tools of a version.

    :raise NoKafka: as ``class_path``.
    """
    if version == KAFKA_VERSION:
        return class_path()
    return _class_path(JARS.with_name(f"kafka-tools-{version}"), (f"kafka_2.13:{version}", f"kafka-tools:{version}"))


def client_class_path(version: str) -> str:
    """Return the class path of Kafka's Java clients of a version.

    :raise NoKafka: as ``class_path``.
    """
    return _class_path(JARS.with_name(f"kafka-clients-{version}"), (f"kafka-clients:{version}",))


def streams_class_path(version: str) -> str:
    """Return the class path of Kafka Streams of a version.

    :raise NoKafka: as ``class_path``.
    """
    return _class_path(JARS.with_name(f"kafka-streams-{version}"), (f"kafka-streams:{version}",))


def connect_class_path() -> str:
    """Return the class path of Kafka Connect with its file connectors and of MirrorMaker 2.

    :raise NoKafka: as ``class_path``.
    """
    names = ("connect-runtime", "connect-file", "connect-mirror")
    artifacts = tuple(f"{name}:{KAFKA_VERSION}" for name in names)
    return _class_path(JARS.with_name(f"kafka-connect-{KAFKA_VERSION}"), artifacts)


def jars_without_dependencies(name: str, artifacts: Sequence[str]) -> list[Path]:
    """Return jars without their dependencies, downloaded once.

    :param name: name of the directory that stores them.
    :param artifacts: ``group:artifact:version``.
    :raise NoKafka: as ``class_path``.
    """
    folder = JARS.with_name(name)
    _class_path(folder, artifacts)
    wanted = ["-".join(artifact.split(":")[1:]) + ".jar" for artifact in artifacts]
    return [folder / each for each in wanted]


def _class_path(jars: Path, artifacts: Sequence[str]) -> str:
    if shutil.which("java") is None:
        raise NoKafka("java is not installed")
    if not jars.is_dir():
        _fetch(jars, artifacts)
    return f"{jars}/*"


def _fetch(jars: Path, artifacts: Sequence[str]) -> None:
    if shutil.which("mvn") is None:
        raise NoKafka(f"mvn is not installed, and {jars} does not exist")
    with tempfile.TemporaryDirectory() as directory:
        dependencies = "\n".join(map(_dependency, artifacts))
        (Path(directory) / "pom.xml").write_text(_POM.format(dependencies))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}.part"]
        result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=600, check=False)
    if result.returncode:
        raise NoKafka(f"mvn could not fetch {', '.join(artifacts)}: {result.stdout[-500:]}")
    Path(f"{jars}.part").rename(jars)


def _dependency(artifact: str) -> str:
    """Return the Maven dependency of an artifact, with its own dependencies unless it has a group."""
    parts = artifact.split(":")
    return _DEPENDENCY.format(*parts, _ALONE) if len(parts) == 3 else _DEPENDENCY.format("org.apache.kafka", *parts, "")


def run_program(version: str, source: Path, *arguments: object) -> str:
    """Run a program of one source file that uses Kafka's Java clients of a version, and return its output."""
    java = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command = [*java, "-cp", client_class_path(version), str(source), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if result.returncode:
        raise AssertionError(f"{source.name} failed: {result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.stdout


def dump_log(*arguments: str) -> str:
    """Return the output of Kafka's ``DumpLogSegments``."""
    command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path(), "kafka.tools.DumpLogSegments"]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=False)
    if result.returncode:
        raise AssertionError(f"DumpLogSegments failed: {result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.stdout + result.stderr


def run_tool(main: str, bootstrap_servers: str, *arguments: object) -> str:
    """Run a command-line tool of Kafka and return its output.

    :param main: its class, below ``org.apache.kafka.tools`` unless it starts with ``kafka.``.
    """
    name = main if main.startswith("kafka.") else f"org.apache.kafka.tools.{main}"
    java = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path(), name]
    words = ["--bootstrap-server", bootstrap_servers, *map(str, arguments)]
    result = subprocess.run([*java, *words], capture_output=True, text=True, timeout=120, check=False)
    if result.returncode:
        raise AssertionError(f"{main} failed: {result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.stdout


def free_port() -> int:
    """Return a loopback port that was free just before (Kafka cannot report a port that it chose)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int, process: subprocess.Popen[bytes], deadline_s: float = 60.0) -> None:
    """Wait until the process listens on the port."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise AssertionError(f"the process ended with {process.returncode} before it listened on {port}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on {port} after {deadline_s} s")


class Broker:
    """A running broker; ``stop`` ends it with a controlled shutdown, ``kill`` without."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self.bootstrap_servers = f"127.0.0.1:{port}"

    def stop(self) -> None:
        """Send SIGTERM and wait."""
        self._process.terminate()
        self._process.wait(60)

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        self._process.kill()
        self._process.wait(60)


def start(
    main: str, properties: dict[str, object], directory: Path, heap: str, version: str = KAFKA_VERSION
) -> subprocess.Popen[bytes]:
    """Start a server of Kafka or ZooKeeper; settings and output are in the directory."""
    name = main.rsplit(".", 1)[-1]
    config = directory / f"{name}.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    with open(directory / f"{name}.out", "wb") as output:
        return subprocess.Popen(
            ["java", f"-Xmx{heap}", "-XX:TieredStopAtLevel=1", "-cp", server_class_path(version), main, str(config)],
            stdout=output,
            stderr=output,
        )


@contextmanager
def zookeeper(directory: Path) -> Iterator[str]:
    """Run a ZooKeeper on loopback and yield its address."""
    port = free_port()
    properties = {
        "dataDir": directory / "zookeeper",
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "admin.enableServer": "false",
        "tickTime": 500,
    }
    process = start("org.apache.zookeeper.server.quorum.QuorumPeerMain", properties, directory, "128m")
    try:
        wait_for_port(port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(30)


@contextmanager
def broker(directory: Path, zookeeper_address: str, log_directory: Path, **settings: object) -> Iterator[Broker]:
    """Run a broker on loopback with its log directory; it is killed at the end if it is still running."""
    port = free_port()
    properties = {
        "broker.id": 1,
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "zookeeper.connect": zookeeper_address,
        "log.dirs": log_directory,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    process = start("kafka.Kafka", properties, directory, "384m")
    try:
        wait_for_port(port, process)
        yield Broker(process, port)
    finally:
        process.kill()
        process.wait(30)
