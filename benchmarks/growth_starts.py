"""Time to restart a broker with its data, after a clean stop and after ``kill -9``.

After a kill, the broker reads all data that was not synced: here everything, the worst case.  The data is still in the
page cache, as it always is unless the machine itself fails.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import chain, cycle, islice
from pathlib import Path

from benchmarks.growth_load import Broker, Clients
from benchmarks.growth_topics import PRODUCED, Partition, create, partitions_of, produce_frame, wait_until_started

Figures = dict[str, float]

MB = 1_000_000
VALUE_BYTES = 900_000
"""Size of a batch, below the broker's default limit."""

STOP_TIME_S = 120.0


class Stopped:
    """A killed broker with data, which can be restored to that state repeatedly.

    :param data_mb: amount of data, written to all partitions in turn; 0 for one small record in each.
    """

    def __init__(self, directory: Path, partitions: int, data_mb: int = 0) -> None:
        self._broker = Broker(directory / "broker")
        self._kept = directory / "kept"
        self._partitions = partitions_of(partitions)
        try:
            self._broker.start()
            self._write(data_mb)
        finally:
            self._broker.kill()
        shutil.move(self._broker.data_directory, self._kept)

    def sample(self) -> Figures:
        """Start the broker after the kill, stop it, and start it again."""
        shutil.rmtree(self._broker.data_directory, ignore_errors=True)
        shutil.copytree(self._kept, self._broker.data_directory)
        try:
            killed = self._started("after kill -9")
            self._broker.stop(STOP_TIME_S)
            return {**self._started("after a stop"), **killed, "memory MB": self._broker.resident_mb()}
        finally:
            self._broker.kill()

    def _started(self, after: str) -> Figures:
        self._broker.launch()
        taken_s = wait_until_started(self._broker, self._partitions)
        return {f"start {after} s": taken_s, f"start {after}, CPU s": self._broker.cpu_s()}

    def _write(self, data_mb: int) -> None:
        clients = Clients.one(self._broker.port, window=5)
        create(clients.connections[0], self._partitions)
        for response in clients.request_all(_frames(self._partitions, data_mb * MB)):
            PRODUCED.parse(response)
        clients.close()


def _frames(partitions: Sequence[Partition], size_bytes: int) -> chain[bytes]:
    small = map(produce_frame, partitions)
    large = [produce_frame(each, VALUE_BYTES) for each in partitions] if size_bytes else []
    return chain(small, islice(cycle(large), size_bytes // VALUE_BYTES))
