"""ZooKeeper's Java client as a target of the ZooKeeper benchmark: one Java process that runs many experiments.

The client and the compiler (Janino) are in the jars that PySpark ships.  The process keeps running between experiments,
so that its code is compiled to machine code, as in any long-running program.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Timer

from benchmarks.broker_process import cpu_s
from benchmarks.zookeeper_experiments import EXPERIMENT_TIME_S_MAX, Experiment
from kreplica.zookeeper.java_server import class_path, java_path

HERE = Path(__file__).parent
COMPILER = "org.codehaus.janino.JavaSourceClassLoader"
PROGRAM = "ZooKeeperLoad"
FLAGS = ("-Xmx1g", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError", "-Dlog4j2.level=off")
OUT_OF_MEMORY_STATUS = 3
"""Exit status of a Java process with ``ExitOnOutOfMemoryError``."""


class JavaClient:
    """Java process that runs experiments; it is started for the first one, and again if it has exited."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, port: int, experiment: Experiment, paths: Sequence[str], data: bytes) -> float:
        """Run an experiment on the znodes ``ROOT/0``, ``ROOT/1`` and so on.

        :return: the seconds that it took.
        :raise JavaOutcome: the experiment failed.
        """
        process = self._process = self._process or _start()
        assert process.stdin is not None
        assert process.stdout is not None
        fields = [f"127.0.0.1:{port}", paths[0].rpartition("/")[0], len(paths), data.hex(), experiment.kind,
                  experiment.window, experiment.size, experiment.check or "-"]  # fmt: skip
        limit = Timer(EXPERIMENT_TIME_S_MAX, process.kill)
        limit.start()
        try:
            process.stdin.write("\t".join(map(str, fields)) + "\n")
            process.stdin.flush()
            line = next((line for line in process.stdout if line.startswith("{")), "")
        finally:
            limit.cancel()
        if not line:
            status = process.wait()
            self.stop()
            raise JavaOutcome("OutOfMemory" if status == OUT_OF_MEMORY_STATUS else f"exit status {status}")
        outcome = json.loads(line)
        if "error" in outcome:
            raise JavaOutcome(outcome["error"])
        return float(outcome["seconds"])

    def cpu_s(self) -> float:
        """Return the CPU time of the process in seconds; 0 while it does not run."""
        if self._process is None or self._process.poll() is not None:
            return 0.0
        return cpu_s(self._process.pid)

    def stop(self) -> None:
        """Stop the process; does nothing if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


class JavaOutcome(Exception):
    """An experiment failed in the Java client; the message is the name of the error."""


def _start() -> subprocess.Popen[str]:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars = Path(spec.origin).parent / "jars"
    compiler = [str(path) for prefix in ("janino", "commons-compiler") for path in jars.glob(f"{prefix}-*.jar")]
    command = [java_path(), *FLAGS, "-cp", os.pathsep.join([class_path(), *compiler]),
               COMPILER, "-sourcepath", str(HERE), PROGRAM]  # fmt: skip
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, text=True)
