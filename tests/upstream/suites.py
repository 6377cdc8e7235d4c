"""Upstream test suites: their source, the tests that run, and the tests that are known to fail."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "build" / "upstream"
"""Directory of source distributions, kept between runs."""


class SuiteUnavailable(AssertionError):
    """The package is not available or is not the pinned one; the message gives the reason."""


@dataclass(frozen=True)
class Expected:
    """Expected results of a suite.

    :param project: name of the project; ``version`` is its version.
    :param test_count: number of tests.
    :param passed_count: number of tests that pass.
    :param not_passed: prefix of a test's name -> reason why it does not pass.
    """

    project: str
    version: str
    test_count: int
    passed_count: int
    not_passed: Mapping[str, str]

    def reason(self, test: str) -> str | None:
        """Return why a test is known not to pass, or None if it should pass."""
        return next((reason for entry, reason in self.not_passed.items() if self.names(entry, test)), None)

    @staticmethod
    def names(entry: str, test: str) -> bool:
        """Return True if an entry of ``not_passed`` applies to the test."""
        return test.startswith(entry)

    def differences(self, outcomes: Mapping[str, str]) -> Iterator[str]:
        """Yield differences from the expected results: failures, skips, and outdated entries.

        :param outcomes: test -> "passed", or another outcome.
        """
        for test, outcome in outcomes.items():
            reason = self.reason(test)
            if outcome == "passed" and reason is not None:
                yield f"{test} passes, but is listed: {reason}"
            elif outcome != "passed" and reason is None:
                yield f"{test} does not pass: {outcome}"
        for name in self.not_passed:
            if not any(self.names(name, test) for test in outcomes):
                yield f"{name} is listed, but no such test exists"
        passed = sum(outcome == "passed" for outcome in outcomes.values())
        if (len(outcomes), passed) != (self.test_count, self.passed_count):
            yield (
                f"{len(outcomes)} tests ran and {passed} passed, "
                f"expected {self.test_count} and {self.passed_count}"
            )


@dataclass(frozen=True)
class Suite(Expected):
    """A suite in the source distribution of its project.

    ``project`` is its name in the package index.

    :param sha256: checksum of the source distribution, in hexadecimal.
    :param folders: extracted directories; if they lack the client's code, the installed client is used.
    :param missing: path -> text of files that tests import and that the project does not publish.
    :param run: path that pytest collects.
    """

    sha256: str = field(kw_only=True)
    folders: tuple[str, ...] = field(kw_only=True)
    run: str = field(kw_only=True)
    missing: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def archive_name(self) -> str:
        """File name of the source distribution in the package index."""
        return f"{self.project.replace('-', '_')}-{self.version}"

    def unpack(self, directory: Path) -> None:
        """Extract the suite to a directory where it can run.

        :raise NotTheSuite: the suite is not available.
        """
        from archives import unpack  # here, because upstream_page.py runs without pytest's path

        beginning = f"{self.archive_name}/"
        with tarfile.open(self._fetched()) as archive:
            members = archive.getmembers()
            for member in members:
                member.name = member.name.removeprefix(beginning)
            unpack(archive, directory, (each for each in members if each.name.split("/")[0] in self.folders))
        for name, text in self.missing.items():
            (directory / name).write_text(text)

    def _fetched(self) -> Path:
        archive = CACHE / f"{self.archive_name}.tar.gz"
        if not archive.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=CACHE) as part:
                self._download(Path(part)).rename(archive)
        if (found := hashlib.sha256(archive.read_bytes()).hexdigest()) != self.sha256:
            archive.unlink()
            raise SuiteUnavailable(f"{archive.name} has the SHA-256 {found} instead of {self.sha256}; it was removed")
        return archive

    def _download(self, directory: Path) -> Path:
        requirement = f"{self.project}=={self.version} --hash=sha256:{self.sha256}\n"
        (directory / "pinned.txt").write_text(requirement)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        source = ["--no-binary", self.project, "--requirement", "pinned.txt", "--dest", "."]
        done = subprocess.run([*pip, *source], cwd=directory, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise SuiteUnavailable(f"{requirement} is not available: {done.stderr[-2000:]}")
        return directory / f"{self.archive_name}.tar.gz"
