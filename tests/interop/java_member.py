"""Kafka's Java consumer as a member of a group, in a separate process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import apache_kafka

PROGRAM = Path(__file__).with_name("java") / "GroupMember.java"


class JavaMember:
    """A member that starts on entering the context, and leaves its group at the end of the context.

    :param version: version of Kafka's clients.
    :param settings: settings of the consumer.
    """

    def __init__(self, version: str, servers: str, group: str, topic: str, output: Path, **settings: object) -> None:
        java = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        words = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        classes = apache_kafka.client_class_path(version)
        self._command = [*java, "-cp", classes, str(PROGRAM), servers, group, topic, *words]
        self._output = output

    def __enter__(self) -> Self:
        with open(self._output, "wb") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Make the member leave its group. Further calls do nothing."""
        self._process.terminate()
        self._process.wait(30)

    def _lines_with(self, word: str) -> list[str]:
        lines = self._output.read_text().splitlines()
        return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]

    @property
    def values(self) -> list[bytes]:
        """Values of the records that the member has read."""
        return [value.encode() for value in self._lines_with("value")]

    @property
    def share(self) -> frozenset[int]:
        """The partitions that the member owns."""
        return frozenset(json.loads(([*self._lines_with("share")] or ["[]"])[-1]))

    @property
    def revoked(self) -> list[int]:
        """Number of partitions in each revocation."""
        return [int(count) for count in self._lines_with("revoked")]
