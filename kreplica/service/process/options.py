"""The command-line options of ``twistd kreplica``."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any, ClassVar

from twisted.python import usage

from kreplica.service.process.log_output import FORMATS

ZNODES_MAX = 1_000_000
ZNODE_BYTES_MAX = 384 * 2**20
ADDRESS_CONNECTIONS_MAX = 1_000
"""Defaults of the embedded ZooKeeper server; repeated here because importing its package would load Twisted's TLS."""

ENVIRONMENT = ["environment", None, "also read settings from environment variables, such as KAFKA_NUM_PARTITIONS=3"]
"""Flag of the commands that container images run; ``--override`` takes precedence over environment variables."""

RENAMED = {"--coordinator-port": "--zookeeper-port"}
"""Old names of options, which still work but are not listed."""

BROKER_ID_MAX = 1000
"""Kafka's default for ``reserved.broker.max.id``."""


def _port(text: str) -> int:
    try:
        port = int(text)
    except ValueError:
        port = -1
    if not 0 <= port <= 65535:
        raise ValueError(f"{text!r} is not a port (0 to 65535; 0 lets the system choose)")
    return port


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if not 1 <= count <= 100:
        raise ValueError(f"{text!r} is not a number of brokers (1 to 100)")
    return count


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError(f"{text!r} is not a positive number")
    return int(text)


def _broker_id(text: str) -> int:
    if not text.isdecimal() or int(text) > BROKER_ID_MAX:
        raise ValueError(f"{text!r} is not a broker id (0 to {BROKER_ID_MAX})")
    return int(text)


def _host(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9.-]+", text) is None:
        raise ValueError(f"{text!r} is not a host name or IPv4 address")
    return text


def _interface(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except ValueError:
        raise ValueError(f"{text!r} is not an IPv4 address") from None


def _process(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a process ID")
    return int(text)


class _Options(usage.Options):
    """Options of all commands."""

    command: ClassVar[str]

    optParameters: ClassVar[list[list[Any]]] = [
        ["log-format", None, "text", f"format of log lines: {' or '.join(FORMATS)}"],
    ]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self["overrides"] = []

    def getSynopsis(self) -> str:
        return _synopsis(f"{self.command} [options]")

    def opt_override(self, text: str) -> None:
        """One setting, as name=value; takes precedence over the file.  Can be repeated."""
        if "=" not in text:
            raise usage.UsageError(f"--override {text!r}: expected name=value")
        self["overrides"].append(text)

    def postOptions(self) -> None:
        if self["log-format"] not in FORMATS:
            raise usage.UsageError(f"--log-format {self['log-format']!r}: {' or '.join(FORMATS)} is expected")


class StandaloneOptions(_Options):
    """Brokers and an embedded ZooKeeper server, without configuration, on loopback by default."""

    command = "standalone"
    longdesc = "Starts brokers and an embedded ZooKeeper-compatible server. `kreplica start` does the same."

    optFlags: ClassVar[list[list[Any]]] = [
        ["processes", None, "run each broker in its own process, so that each can use one core"],
        ["secured", "s", "require TLS, passwords and ACLs; the first start creates certificates and the user admin"],
        ENVIRONMENT,
    ]

    optParameters: ClassVar[list[list[Any]]] = [
        ["brokers", "n", 1, "number of brokers; they listen on consecutive ports", _count],
        ["data-dir", "d", "data", "data directory; created if it does not exist"],
        ["port", "p", 9092, "the first broker's port", _port],
        ["admin-port", None, 8080, "the admin API's port", _port],
        ["zookeeper-port", None, 2181, "port of the embedded ZooKeeper server", _port],
        ["bootstrap-port", None, None, "with --processes: a port that all brokers share, so that clients need only one "
         "address", _port],
        ["first-broker-id", None, 1, "ID of the first broker; the others get the following IDs", _broker_id],
        ["advertised-host", None, "127.0.0.1", "host to advertise", _host],
        ["interface", "i", "127.0.0.1", "address on which the brokers and the admin API listen", _interface],
    ]

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Parse the options; warn about old names, and use the new ones."""
        words = sys.argv[1:] if options is None else options
        super().parseOptions([_with_new_name(word) for word in words])  # type: ignore[no-untyped-call]

    def postOptions(self) -> None:
        super().postOptions()
        if self["secured"] and self["processes"]:
            raise usage.UsageError("--secured and --processes cannot be combined")
        if self["bootstrap-port"] and not self["processes"]:
            raise usage.UsageError("--bootstrap-port requires --processes")
        if self["brokers"] > 1 and not IPv4Address(self["interface"]).is_loopback:
            raise usage.UsageError("--interface: several brokers in one process listen on loopback only")


class BrokerOptions(_Options):
    """One broker of a cluster with an external ZooKeeper."""

    command = "broker"
    longdesc = "Starts one broker of a cluster with an external ZooKeeper."

    optFlags: ClassVar[list[list[Any]]] = [ENVIRONMENT]

    optParameters: ClassVar[list[list[Any]]] = [
        ["config", "c", None, "file with the broker's settings, in the format of Kafka's server.properties"],
        ["child-of", None, None, "ID of the parent process; the broker stops when it ends", _process],
    ]

    def postOptions(self) -> None:
        super().postOptions()
        if self["config"] is None and not self["environment"]:
            raise usage.UsageError("--config FILE is required; etc/kreplica/broker.properties is an example")


class CoordinatorOptions(_Options):
    """The embedded ZooKeeper server without brokers, for clusters on one machine."""

    command = "coordinator"
    longdesc = "Starts the embedded ZooKeeper-compatible server without brokers, for clusters on one machine."

    optParameters: ClassVar[list[list[Any]]] = [
        ["data-dir", "d", "coordinator-data", "directory of the znodes; created if it does not exist"],
        ["port", "p", 2181, "the port", _port],
        ["interface", "i", "127.0.0.1", "the address to listen on"],
        ["config", "c", None, "file with settings for TLS and authentication (kreplica.coordinator.*)"],
        ["znodes-max", None, ZNODES_MAX, "maximum number of znodes", _positive],
        ["znode-bytes-max", None, ZNODE_BYTES_MAX, "maximum total size of the znodes in bytes", _positive],
        ["address-connections-max", None, ADDRESS_CONNECTIONS_MAX, "maximum connections per address", _positive],
    ]


class Options(usage.Options):
    """Options of ``twistd kreplica``, for service managers; ``kreplica start`` is the command for people."""

    subCommands: ClassVar[list[list[Any]]] = [
        ["standalone", None, StandaloneOptions, "brokers and an embedded ZooKeeper-compatible server"],
        ["broker", None, BrokerOptions, "one broker of a cluster"],
        ["coordinator", None, CoordinatorOptions, "the embedded ZooKeeper-compatible server without brokers"],
    ]

    def getSynopsis(self) -> str:
        return _synopsis("standalone|broker|coordinator [options]")

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Parse the command line; on an error, print it as one line and end the process with status 1.

        twistd would print the complete help before the error.
        """
        try:
            super().parseOptions(options)  # type: ignore[no-untyped-call]
        except usage.UsageError as error:
            words = " ".join(["twistd", "kreplica", *([self.subCommand] if self.subCommand else []), "--help"])
            text = str(error).removeprefix("Parameter type enforcement failed: ")
            print(f"kreplica: {text}\nSee `{words}`.", file=sys.stderr)
            raise SystemExit(1) from None

    def postOptions(self) -> None:
        if self.subCommand is None:
            raise usage.UsageError("specify a command: standalone, broker or coordinator")


def _with_new_name(word: str) -> str:
    name, equals, value = word.partition("=")
    if name not in RENAMED:
        return word
    print(f"kreplica: {name} is deprecated; use {RENAMED[name]}", file=sys.stderr)
    return f"{RENAMED[name]}{equals}{value}"


def _synopsis(words: str) -> str:
    """Return the usage line; Twisted would insert the name of the program twice."""
    return f"Usage: twistd [twistd options] kreplica {words}"
