"""Test suites of Go clients, which are taken from their modules and run unchanged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from suites import CACHE, Expected, SuiteUnavailable

DOWNLOAD_S_MAX = 300


@dataclass(frozen=True)
class Module:
    """A version of a Go module.

    :param h1: checksum of the module in ``go.sum``.
    """

    path: str
    version: str
    h1: str

    def unpack(self, directory: Path) -> None:
        """Copy the module to a new directory.

        :raise NotTheSuite: the module is not available, or has another checksum.
        """
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["go", "mod", "download", "-json", f"{self.path}@{self.version}"]
        done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, timeout=DOWNLOAD_S_MAX, check=False)
        module_info = json.loads(done.stdout) if done.stdout else {"Error": done.stderr}
        if module_info.get("Error"):
            raise SuiteUnavailable(f"{self.path} {self.version}: {module_info['Error']}")
        if module_info["Sum"] != self.h1:
            raise SuiteUnavailable(
                f"{self.path} {self.version} has the checksum {module_info['Sum']} instead of {self.h1}"
            )
        shutil.copytree(module_info["Dir"], directory, copy_function=shutil.copyfile)
        for folder, _, _ in os.walk(directory):
            os.chmod(folder, 0o755)


@dataclass(frozen=True)
class GoSuite(Expected):
    """A suite and its expected results.

    :param module: the module that contains the tests.
    :param packages: packages, as arguments of ``go test``.
    :param flags: flags of ``go test``.
    :param environment: environment variables of the suite.
    :param seconds_max: time limit.
    """

    module: Module = field(kw_only=True)
    packages: Sequence[str] = field(default=("./...",), kw_only=True)
    flags: Sequence[str] = field(default=(), kw_only=True)
    environment: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    seconds_max: int = field(default=900, kw_only=True)

    @staticmethod
    def names(entry: str, test: str) -> bool:
        """Return True if an entry, which is a name or a pattern with ``*``, matches the test."""
        return fnmatchcase(test, entry)

    def run(
        self, directory: Path, environment: Mapping[str, str], command_prefix: Sequence[str] = ()
    ) -> dict[str, str]:
        """Run the suite in a new directory.

        :param environment: additional environment variables, such as the addresses of brokers.
        :param command_prefix: command that runs the suite's command, such as ``ip netns exec NAME``.
        :return: top-level test -> "passed", "skip" or "fail".
        :raise AssertionError: the tests do not compile.
        """
        self.module.unpack(directory)
        variables = {"GOFLAGS": "-mod=mod", **self.environment, **environment}
        # Compilation needs the module proxy, which cannot be reached from a network namespace.
        compiled = self._go(["test", "-c", "-o", os.devnull, *self.flags, *self.packages], directory, variables, ())
        assert compiled.returncode == 0, compiled.stderr[-3000:]
        words = ["test", "-json", "-count=1", "-p=1", f"-timeout={self.seconds_max}s", *self.flags, *self.packages]
        done = self._go(words, directory, {**variables, "GOPROXY": "off"}, command_prefix)
        (directory / "output.jsonl").write_text(done.stdout + done.stderr)
        outcomes = _outcomes(done.stdout)
        assert outcomes, done.stdout[-3000:] + done.stderr[-3000:]
        return outcomes

    def _go(
        self, words: Sequence[str], directory: Path, variables: Mapping[str, str], prefix: Sequence[str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*prefix, "go", *words],
            cwd=directory,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=self.seconds_max + 120,
            check=False,
        )


def _outcomes(output: str) -> dict[str, str]:
    """Parse the results of top-level tests in the output of ``go test -json``."""
    outcomes = {}
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        name = event.get("Test", "")
        if name and "/" not in name and event["Action"] in ("pass", "fail", "skip"):
            outcomes[name] = "passed" if event["Action"] == "pass" else event["Action"]
    return outcomes
