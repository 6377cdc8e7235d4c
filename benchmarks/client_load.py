"""A client library under load: ``python -m benchmarks.client_load LIBRARY``.

Each line of standard input is a case in JSON, and each result is a line of JSON.  A case creates a client, warms it up,
and is measured for a fixed time.  ``benchmarks/client_load_LIBRARY.py`` uses a library as its documentation
recommends.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

CHUNK = 256
"""Number of records between two reads of the clock."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case with the same settings for all libraries.

    :param what: ``produce`` or ``consume``.
    :param style: style of the library's calls: ``record`` for one record at a time, ``batch`` for as many as possible.
    :param seconds: duration; work in progress at its end is completed and counted.
    :param varied: True for values of half to one and a half times ``record_bytes``, False if all have this size.
    :param batch_bytes: size of a producer's batches.
    :param acks: -1 (all, with idempotence) or 1 (without).
    :param fetch_bytes: size limit of one partition in a response; ``response_bytes`` limits all partitions together.
    """

    what: str
    bootstrap: str
    topic: str
    partitions: int
    style: str
    seconds: float
    record_bytes: int
    varied: bool
    batch_bytes: int
    acks: int = -1
    linger_ms: int = 5
    in_flight: int = 5
    fetch_bytes: int = 1 << 20
    response_bytes: int = 50 << 20
    wait_ms: int = 500

    @property
    def values(self) -> list[bytes]:
        """The values of ``CHUNK`` records, which are sent repeatedly."""
        return make_values(self.record_bytes, varied=self.varied)

    @property
    def idempotent(self) -> bool:
        """True if batches have sequence numbers."""
        return self.acks == -1


def make_values(record_bytes: int, *, varied: bool) -> list[bytes]:
    """Return the values of ``CHUNK`` records, which are the same in each run.

    :param varied: True for values of half to one and a half times this size.
    """
    letters = bytes(97 + number % 26 for number in range(2 * record_bytes))
    random = Random(record_bytes)
    half = record_bytes // 2
    return [letters[: random.randint(half, 3 * half) if varied else record_bytes] for _ in range(CHUNK)]


class Meter:
    """Counts records and measures time, starting at its creation, after the library's warm-up."""

    def __init__(self, seconds: float) -> None:
        self.records = 0
        self.bytes = 0
        self._cpu_s = time.process_time()
        self._started_s = time.monotonic()
        self._until_s = self._started_s + seconds

    @property
    def is_over(self) -> bool:
        """True if the duration of the case has passed."""
        return time.monotonic() >= self._until_s

    def report(self) -> dict[str, Any]:
        """Return the measurements so far."""
        return {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": time.monotonic() - self._started_s,
            "cpu_s": time.process_time() - self._cpu_s,
        }


def cases() -> Iterator[Case]:
    """Read cases from standard input."""
    for line in sys.stdin:
        yield Case(**json.loads(line))


def print_result(meter: Meter) -> None:
    """Print the result of a case."""
    print(json.dumps(meter.report()), flush=True)


def line_of(case: Case) -> str:
    """Encode a case for standard input."""
    return json.dumps(asdict(case)) + "\n"


if __name__ == "__main__":
    (library,) = sys.argv[1:]
    importlib.import_module(f"benchmarks.client_load_{library}").serve()
