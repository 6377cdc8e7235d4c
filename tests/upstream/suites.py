"""Other people's test suites: where one comes from, what of it is run, and what of it is known not to pass."""

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
"""Where source distributions are kept between runs."""


class NotTheSuite(AssertionError):
    """What the package index gave is not what is pinned; the text says how they differ, or why it gave nothing."""


@dataclass(frozen=True)
class Expected:
    """Which tests of a suite do not pass, and why.

    :param project: its name, with ``version``.
    :param tests_count: how many tests there are.
    :param passed_count: how many of them pass.
    :param not_passed: the beginning of a test's name -> why it does not pass.
    """

    project: str
    version: str
    tests_count: int
    passed_count: int
    not_passed: Mapping[str, str]

    def reason(self, test: str) -> str | None:
        """Why a test is known not to pass; ``None`` where it should."""
        return next((reason for entry, reason in self.not_passed.items() if self.names(entry, test)), None)

    @staticmethod
    def names(entry: str, test: str) -> bool:
        """True if an entry of ``not_passed`` is about a test."""
        return test.startswith(entry)

    def untrue(self, outcomes: Mapping[str, str]) -> Iterator[str]:
        """What is otherwise than this suite says, a sentence each: failures, skips, and entries that are out of date.

        :param outcomes: test -> "passed", or what happened instead.
        """
        for test, outcome in outcomes.items():
            reason = self.reason(test)
            if outcome == "passed" and reason is not None:
                yield f"{test} passes, and is listed: {reason}"
            elif outcome != "passed" and reason is None:
                yield f"{test} does not pass: {outcome}"
        for name in self.not_passed:
            if not any(self.names(name, test) for test in outcomes):
                yield f"{name} is listed, and there is no such test"
        passed = sum(outcome == "passed" for outcome in outcomes.values())
        if (len(outcomes), passed) != (self.tests_count, self.passed_count):
            yield (
                f"{len(outcomes)} tests ran and {passed} passed, "
                f"where {self.tests_count} and {self.passed_count} are written down"
            )


@dataclass(frozen=True)
class Suite(Expected):
    """A suite that its project publishes in its source distribution.

    ``project`` is its name in the package index.

    :param sha256: of the source distribution, in hexadecimal.
    :param folders: what is taken out of it; where the client's own code is not among them, it is the installed one.
    :param missing: path -> text of files that its tests import, and that the project does not publish.
    :param run: what pytest is told to collect.
    """

    sha256: str = field(kw_only=True)
    folders: tuple[str, ...] = field(kw_only=True)
    run: str = field(kw_only=True)
    missing: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def archive_name(self) -> str:
        """Of the source distribution, as the package index calls it."""
        return f"{self.project.replace('-', '_')}-{self.version}"

    def unpack(self, directory: Path) -> None:
        """Lay the suite into a directory, ready to be run there.

        :raise NotTheSuite: it cannot be had.
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
        kept = CACHE / f"{self.archive_name}.tar.gz"
        if not kept.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=CACHE) as part:
                self._download(Path(part)).rename(kept)
        if (found := hashlib.sha256(kept.read_bytes()).hexdigest()) != self.sha256:
            kept.unlink()
            raise NotTheSuite(f"{kept.name} has the SHA-256 {found} instead of {self.sha256}; it was removed")
        return kept

    def _download(self, directory: Path) -> Path:
        requirement = f"{self.project}=={self.version} --hash=sha256:{self.sha256}\n"
        (directory / "pinned.txt").write_text(requirement)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        source = ["--no-binary", self.project, "--requirement", "pinned.txt", "--dest", "."]
        done = subprocess.run([*pip, *source], cwd=directory, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise NotTheSuite(f"{requirement} cannot be had: {done.stderr[-2000:]}")
        return directory / f"{self.archive_name}.tar.gz"
