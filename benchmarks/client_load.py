"""A client library under load: ``python -m benchmarks.client_load LIBRARY``.

Each line of standard input is a case in JSON, the answer a line of JSON.  Each case makes a client of its own, gets
ready, and is measured for a fixed time.  What a library is asked to do is in ``benchmarks/client_load_LIBRARY.py``, as
its own documentation would do it.
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
"""Records between two looks at the clock."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is measured, in the same settings for every library.

    :param what: ``produce`` or ``consume``.
    :param style: of the library's calls: ``record`` for one at a time, ``batch`` for as many as it gives or takes.
    :param seconds: how long it goes on, at most; what was begun by then is finished, and counts.
    :param varied: values are from half to one and a half times ``record_bytes`` long, not all the same.
    :param batch_bytes: of a producer's batches; ``acks`` -1 for all, with idempotence, or 1, without.
    :param fetch_bytes: of one partition in an answer; ``answer_bytes`` of all.
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
    answer_bytes: int = 50 << 20
    wait_ms: int = 500

    @property
    def values(self) -> list[bytes]:
        """Of ``CHUNK`` records, which are sent again and again."""
        return make_values(self.record_bytes, varied=self.varied)

    @property
    def idempotent(self) -> bool:
        """Whether batches are numbered."""
        return self.acks == -1


def make_values(record_bytes: int, *, varied: bool) -> list[bytes]:
    """Values of ``CHUNK`` records, the same ones each time.

    :param varied: from half to one and a half times as long.
    """
    letters = bytes(97 + number % 26 for number in range(2 * record_bytes))
    random = Random(record_bytes)
    half = record_bytes // 2
    return [letters[: random.randint(half, 3 * half) if varied else record_bytes] for _ in range(CHUNK)]


class Meter:
    """Counts records and measures what they cost, from when it is made: when the library is warm."""

    def __init__(self, seconds: float) -> None:
        self.records = 0
        self.bytes = 0
        self._cpu_s = time.process_time()
        self._began_s = time.monotonic()
        self._until_s = self._began_s + seconds

    @property
    def is_over(self) -> bool:
        """Whether it has gone on for long enough."""
        return time.monotonic() >= self._until_s

    def report(self) -> dict[str, Any]:
        """What was measured until now."""
        return {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": time.monotonic() - self._began_s,
            "cpu_s": time.process_time() - self._cpu_s,
        }


def cases() -> Iterator[Case]:
    """Those that standard input brings."""
    for line in sys.stdin:
        yield Case(**json.loads(line))


def answer(meter: Meter) -> None:
    """Tell what was measured; to be called as soon as it is."""
    print(json.dumps(meter.report()), flush=True)


def line_of(case: Case) -> str:
    """A case as it goes to standard input."""
    return json.dumps(asdict(case)) + "\n"


if __name__ == "__main__":
    (library,) = sys.argv[1:]
    importlib.import_module(f"benchmarks.client_load_{library}").serve()
