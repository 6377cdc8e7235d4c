"""The systems: kreplica and Apache Kafka 3.9 in ZooKeeper mode, configured as recommended for production.

Both use a real ZooKeeper if there are several brokers. A single kreplica broker uses its embedded ZooKeeper server, as
by default; Kafka uses a separate ZooKeeper, whose costs are not counted.
"""

from __future__ import annotations

import re
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.broker_process import SCRATCH, context_switches, cpu_s, resident_mb
from benchmarks.broker_process import BrokerProcess as Standalone
from benchmarks.comparison.encryption import Encryption
from benchmarks.zookeeper import ZOOKEEPER_FLAGS
from tests.interop import apache_kafka
from tests.support.process_cluster import ProcessCluster, direct_places
from tests.support.real_zookeeper import RealZooKeeper
from tests.support.server_process import free_ports

STARTED = rb"\[KafkaServer id=\d+\] started|\[KafkaRaftServer nodeId=\d+\] Kafka Server started"
"""Log line of a broker that has started to serve, with ZooKeeper and in KRaft mode."""

FIRST_SEGMENT = "00000000000000000000.log"
START_TIME_S = STOP_TIME_S = 300.0

# The flags of kafka-server-start.sh, with the heap size for which the targets were set.
KAFKA_FLAGS = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true",
               "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent")  # fmt: skip

KAFKA_LOGGING = """log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""

SHARED = {"log.segment.delete.delay.ms": "0", "auto.create.topics.enable": "false"}
"""Free the pages of deleted logs at once instead of after a minute, for the next scenario."""


KAFKA_DEFAULTS = {
    "replica.lag.time.max.ms": 30_000,
    "min.insync.replicas": 1,
    "controlled.shutdown.retry.backoff.ms": 5000,
}
"""Kafka's default timeouts, which override the shorter ones of test clusters."""


class Deployment(ABC):
    """A running system.

    :cvar system: name of the system.
    :ivar bootstrap: bootstrap servers for any Kafka client.
    :ivar plain_bootstrap: bootstrap servers without encryption, for requests that are not measured.
    :ivar encryption: None if clients connect without encryption.
    """

    system: str
    encryption: Encryption | None = None

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = self.plain_bootstrap = bootstrap

    def encrypt(self, encryption: Encryption) -> None:
        """Let the measured clients use the encrypted listeners."""
        self.encryption = encryption
        self.bootstrap = encryption.bootstrap

    @abstractmethod
    def pids(self) -> dict[int, int]:
        """Process IDs of the running brokers, by broker ID."""

    @abstractmethod
    def check_running(self) -> None:
        """Raise ``RuntimeError`` with the output of a broker that has exited."""

    @abstractmethod
    def logs(self, topic: str, partition: int) -> list[Path]:
        """Return the active segment of each replica of a new partition."""

    def cpu_s(self) -> float:
        """Return the CPU time of all brokers."""
        return sum(map(cpu_s, self.pids().values()))

    def context_switches(self) -> int:
        """Return the context switches of all brokers."""
        return sum(map(context_switches, self.pids().values()))

    def resident_mb(self) -> float:
        """Return the resident memory of all brokers in MB (1e6 bytes)."""
        return sum(map(resident_mb, self.pids().values()))


class Cluster(Deployment):
    """Several brokers on loopback, which can be stopped and started again.

    :ivar zookeeper: ``host:port``.
    :ivar ports: ports by broker ID, including brokers that are stopped.
    """

    def __init__(self, zookeeper: str, ports: Mapping[int, int]) -> None:
        super().__init__(",".join(f"127.0.0.1:{port}" for port in ports.values()))
        self.zookeeper = zookeeper
        self.ports = ports

    @abstractmethod
    def wait(self, broker: int) -> None:
        """Wait until a broker has exited after a signal."""

    @abstractmethod
    def start(self, broker: int) -> None:
        """Start a stopped broker, and wait until it serves requests."""


class OneKreplica(Deployment):
    """A single broker, as started by ``make run``."""

    system = "kreplica"

    def __init__(self, process: Standalone) -> None:
        super().__init__(process.bootstrap)
        self._process = process

    def pids(self) -> dict[int, int]:
        return {1: self._process.pid}

    def check_running(self) -> None:
        self._process.check_running()

    def logs(self, topic: str, partition: int) -> list[Path]:
        return list(self._process.directory.glob(f"**/{topic}-{partition}/{FIRST_SEGMENT}"))


class KreplicaCluster(Cluster):
    """Broker processes with a real ZooKeeper."""

    system = "kreplica"

    def __init__(self, cluster: ProcessCluster, directory: Path, zookeeper: str) -> None:
        super().__init__(zookeeper, {number: broker.place.port for number, broker in cluster.brokers.items()})
        self._cluster = cluster
        self._directory = directory

    def pids(self) -> dict[int, int]:
        return {number: broker.pid for number, broker in self._cluster.brokers.items() if broker.running}

    def check_running(self) -> None:
        for number, broker in self._cluster.brokers.items():
            if not broker.running:
                raise RuntimeError(f"broker {number} has ended: {broker.output[-3000:]}")

    def logs(self, topic: str, partition: int) -> list[Path]:
        return list(self._directory.glob(f"broker-*/logs/{topic}-{partition}/{FIRST_SEGMENT}"))

    def wait(self, broker: int) -> None:
        self._cluster.brokers[broker].wait(STOP_TIME_S)

    def start(self, broker: int) -> None:
        self._cluster.brokers[broker].start(START_TIME_S)


class KafkaBroker:
    """One process of Apache Kafka.

    :param port: port of its listener without encryption.
    :param settings: all settings of its ``server.properties``.
    :param class_path: class path with the jars of the Kafka version.
    """

    def __init__(self, directory: Path, port: int, settings: Mapping[str, object], class_path: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port = port
        self._output = directory / "output.log"
        config = directory / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        logging = directory / "log4j.properties"
        logging.write_text(KAFKA_LOGGING)
        self._command = ["java", *KAFKA_FLAGS, f"-Dlog4j.configuration=file:{logging}", "-cp", class_path,
                         "kafka.Kafka", str(config)]  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start the process, or start it again after it has exited, without waiting."""
        self._started_s = time.monotonic()
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def wait_until_ready(self) -> float:
        """Return the seconds from the start of the process until its log says that it is ready.

        :raise RuntimeError: the process exited or takes too long; the message contains its output.
        """
        while time.monotonic() - self._started_s < START_TIME_S:
            self.check_running()
            if re.search(STARTED, self._output.read_bytes()):
                return time.monotonic() - self._started_s
            time.sleep(0.02)
        raise RuntimeError(f"Kafka was not ready in {START_TIME_S} s: {self._output_end()}")

    def check_running(self) -> None:
        """Raise ``RuntimeError`` with the output of the process if it has exited."""
        if self.process.poll() is not None:
            raise RuntimeError(f"Kafka ended with status {self.process.returncode}: {self._output_end()}")

    def _output_end(self) -> str:
        return self._output.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.process.kill()
        self.process.wait(60)


class Kafka(Cluster):
    """Brokers of Apache Kafka with a real ZooKeeper."""

    system = "Kafka"

    def __init__(self, brokers: Mapping[int, KafkaBroker], directory: Path, zookeeper: str) -> None:
        super().__init__(zookeeper, {number: broker.port for number, broker in brokers.items()})
        self._brokers = brokers
        self._directory = directory

    def pids(self) -> dict[int, int]:
        return {number: broker.process.pid for number, broker in self._brokers.items() if broker.process.poll() is None}

    def check_running(self) -> None:
        for broker in self._brokers.values():
            broker.check_running()

    def logs(self, topic: str, partition: int) -> list[Path]:
        return list(self._directory.glob(f"kafka-*/logs/{topic}-{partition}/{FIRST_SEGMENT}"))

    def wait(self, broker: int) -> None:
        self._brokers[broker].process.wait(STOP_TIME_S)

    def start(self, broker: int) -> None:
        self._brokers[broker].start()
        self._brokers[broker].wait_until_ready()


def kafka_broker(
    directory: Path,
    broker_id: int,
    zookeeper_address: str,
    settings: Mapping[str, object],
    encryption: Encryption | None = None,
) -> KafkaBroker:
    """Start one broker of Apache Kafka 3.9 in ZooKeeper mode, without waiting."""
    (port,) = free_ports(1)
    listener = f"PLAINTEXT://127.0.0.1:{port}"
    if encryption is not None:
        listener = f"{listener},{encryption.listeners(broker_id)}"
    chosen = {"broker.id": broker_id, "listeners": listener, "zookeeper.connect": zookeeper_address,
              "log.dirs": directory / "logs", **settings}  # fmt: skip
    return KafkaBroker(directory, port, chosen, apache_kafka.class_path())


@contextmanager
def kreplica(brokers: int, encrypted: bool = False) -> Iterator[Deployment]:
    """Run kreplica with this number of brokers."""
    if brokers == 1 and not encrypted:
        with Standalone(SHARED) as process:
            process.wait_until_ready()
            yield OneKreplica(process)
        return
    settings = {**SHARED, **_defaults(brokers), **KAFKA_DEFAULTS}
    with zookeeper("kreplica") as (address, directory):
        cluster = ProcessCluster(directory, direct_places(address, brokers), settings=settings)
        encryption = Encryption(directory / "tls", brokers) if encrypted else None
        if encryption is not None:
            for number, broker in cluster.brokers.items():
                broker.settings.update(encryption.settings)
                for name in ("listeners", "advertised.listeners"):
                    broker.settings[name] = f"{broker.settings[name]},{encryption.listeners(number)}"
        with cluster:
            deployment = KreplicaCluster(cluster, directory, address)
            if encryption is not None:
                deployment.encrypt(encryption)
            yield deployment


@contextmanager
def kafka(brokers: int, encrypted: bool = False) -> Iterator[Deployment]:
    """Run Apache Kafka with this number of brokers.

    :raise apache_kafka.NoKafka: Kafka is not available here; the message names the missing program.
    """
    apache_kafka.class_path()
    with zookeeper("kafka") as (address, directory), ExitStack() as stack:
        started = {}
        encryption = Encryption(directory / "tls", brokers) if encrypted else None
        for number in range(1, brokers + 1):
            settings = {**SHARED, **_defaults(brokers), **(encryption.settings if encryption is not None else {})}
            started[number] = kafka_broker(directory / f"kafka-{number}", number, address, settings, encryption)
            stack.callback(started[number].kill)
        for broker in started.values():
            broker.wait_until_ready()
        deployment = Kafka(started, directory, address)
        if encryption is not None:
            deployment.encrypt(encryption)
        yield deployment


def _defaults(brokers: int) -> dict[str, object]:
    """Return the settings of both systems, with the shortest reasonable session timeout, which would otherwise dominate
    the fail-over times.
    """
    return {
        "zookeeper.session.timeout.ms": 6000,
        "offsets.topic.replication.factor": brokers,
        "transaction.state.log.replication.factor": brokers,
        "transaction.state.log.min.isr": 1,
    }


@contextmanager
def zookeeper(name: str) -> Iterator[tuple[str, Path]]:
    """Run a real ZooKeeper, and create a directory for its user."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix=f"{name}-", dir=SCRATCH, ignore_cleanup_errors=True) as directory,
        RealZooKeeper(Path(directory, "zookeeper"), tick_time_ms=500, jvm_flags=ZOOKEEPER_FLAGS) as server,
    ):
        yield server.connect_string, Path(directory)
