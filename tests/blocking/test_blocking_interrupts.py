"""Ctrl-C at each line of the blocking producer: it closes in bounded time and leaves no transaction open."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from test_blocking_producer import ONE_EACH, transactional

import kreplica
from kreplica.blocking import Producer, ProducerOptions
from kreplica.client_core.errors import OutcomeUnknown

TRACED = tuple(str(Path(kreplica.__file__).parent / name) for name in ("blocking", "client_core"))
CLOSED_WITHIN_S = 130.0
"""Slightly more than twice the timeout of a request."""


class Line(NamedTuple):
    """One execution of a line of the traced packages; ``number`` counts the executions of all lines."""

    file: str
    line: int
    number: int


@contextmanager
def traced(on_line: Callable[[FrameType], None]) -> Iterator[None]:
    """Call a function before each line of the traced packages."""

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            on_line(frame)
        return trace if frame.f_code.co_filename.startswith(TRACED) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def write_two_transactions(producer: Producer) -> None:
    for _ in range(2):
        producer.begin()
        for value in range(3):
            producer.send("t", b"%d" % value, partition=0)
        producer.commit()


def executed_lines() -> list[Line]:
    """Return the first and the last execution of each line."""
    first: dict[tuple[str, int], Line] = {}
    last: dict[tuple[str, int], Line] = {}
    count = 0

    def on_line(frame: FrameType) -> None:
        nonlocal count
        count += 1
        key = (frame.f_code.co_filename, frame.f_lineno)
        last[key] = Line(*key, count)
        first.setdefault(key, last[key])

    brokers, _ = transactional()
    options = ProducerOptions(transactional_id="x", **ONE_EACH)
    with Producer(brokers.cluster(), options) as producer, traced(on_line):
        write_two_transactions(producer)
    return sorted({*first.values(), *last.values()}, key=lambda each: each.number)


def interrupt_at(line: Line) -> tuple[Producer, list[Any], float]:
    """Interrupt a producer at one execution of a line, and leave its context manager.

    :return: the producer, its requests, and the seconds that the exit took.
    """
    brokers, requests = transactional()
    producer = Producer(brokers.cluster(), ProducerOptions(transactional_id="x", **ONE_EACH))
    count = 0

    def on_line(_: FrameType) -> None:
        nonlocal count
        count += 1
        if count == line.number:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), producer, traced(on_line):
        write_two_transactions(producer)
    return producer, requests, brokers.now_s - 1000


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_interrupt_at_each_line_of_a_transaction() -> None:
    """After an interrupt at any line, the transaction is aborted, or its outcome is reported as unknown."""
    lines = executed_lines()
    assert len(lines) > 300
    for line in lines:
        producer, requests, seconds = interrupt_at(line)
        assert seconds < CLOSED_WITHIN_S, line
        is_unknown = isinstance(producer._transactions and producer._transactions.unusable, OutcomeUnknown)
        assert is_unknown or not requests or requests[-1][0] in ("init", "commit", "abort"), (line, requests)
