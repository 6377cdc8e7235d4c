"""The modes of ``load.c`` in Python, for machines that cannot compile it; arguments and reports are the same."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from benchmarks.raw_client import CLIENT_ID, record_batch

TIME_LIMIT_S = 60.0


def main(arguments: list[str]) -> None:
    modes: dict[str, Callable[..., dict[str, Any]]] = {
        "produce": produce,
        "consume": consume,
        "latency": latency,
        "tiny": tiny,
    }
    mode, bootstrap, topic, *rest = arguments
    report = modes[mode](bootstrap, topic, *rest)
    print(json.dumps(report), flush=True)


def wait_for_go() -> tuple[float, float]:
    """Print ``ready`` and wait for the start signal; return the monotonic time and the CPU time at the start."""
    print("ready", flush=True)
    if not sys.stdin.readline():
        sys.exit("standard input closed before the start")
    return time.monotonic(), time.process_time()


def new_producer(bootstrap: str, batch_bytes: int, acks: str, linger_ms: int) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.size": batch_bytes,
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "linger.ms": linger_ms,
            "acks": acks,
            "enable.idempotence": False,
        }
    )


def new_consumer(bootstrap: str, topic: str, partitions: int, fetch_bytes: int) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "load",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": fetch_bytes,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    return consumer


def warm_up(producer: Producer, topic: str, partitions: int, value: bytes) -> None:
    for partition in range(partitions):
        producer.produce(topic, value, partition=partition, on_delivery=_check)
    if producer.flush(15):
        sys.exit("warming up: no acknowledgement within 15 s")


def _check(error: KafkaError | None, _: Any) -> None:
    if error is not None:
        sys.exit(f"produce: {error}")


def produce(
    bootstrap: str, topic: str, partitions: str, record_bytes: str, batch_bytes: str, total_bytes: str, acks: str
) -> dict[str, Any]:
    value = bytes(97 + i % 26 for i in range(int(record_bytes)))
    total = int(total_bytes) // len(value)
    producer = new_producer(bootstrap, int(batch_bytes), acks, 5)
    warm_up(producer, topic, int(partitions), value)
    began, cpu = wait_for_go()
    for number in range(total):
        while True:
            try:
                producer.produce(topic, value, partition=number % int(partitions))
                break
            except BufferError:
                producer.poll(0.005)
        if number % 1024 == 0:
            producer.poll(0)
    producer.flush(TIME_LIMIT_S)
    return _report(total, began, cpu, bytes=total * len(value), failures=len(producer))


def consume(bootstrap: str, topic: str, partitions: str, messages: str, fetch_bytes: str) -> dict[str, Any]:
    consumer = new_consumer(bootstrap, topic, int(partitions), int(fetch_bytes))
    count = total_bytes = first_bytes = 0
    started, cpu = wait_for_go()
    began = 0.0
    while count < int(messages):
        for message in consumer.consume(min(10_000, int(messages) - count) if began else 1, 1.0):
            if message.error() is None:
                count += 1
                total_bytes += len(message.value() or b"")
        if not began and count:
            began, first_bytes = time.monotonic(), total_bytes
        if time.monotonic() - started > TIME_LIMIT_S:
            sys.exit("consuming: not all records arrived within 60 s")
    return _report(count, began, cpu, bytes=total_bytes, timed_bytes=total_bytes - first_bytes)


def latency(
    bootstrap: str, topic: str, records_per_s: str, seconds: str, record_bytes: str, *settings: str
) -> dict[str, Any]:
    """Measure end-to-end latencies; ``settings`` are acks, linger in ms, and batch size in bytes."""
    rate, total = int(records_per_s), int(records_per_s) * int(seconds)
    acks, linger_ms, batch_bytes = settings
    producer = new_producer(bootstrap, int(batch_bytes), acks, int(linger_ms))
    padding = bytes(int(record_bytes) - 8)
    warm_up(producer, topic, 1, struct.pack("d", 0.0) + padding)
    consumer = new_consumer(bootstrap, topic, 1, 1 << 20)
    if consumer.poll(15) is None:
        sys.exit("warming up: no record within 15 s")
    began, cpu = wait_for_go()
    latencies_s: list[float] = []

    def read() -> None:
        while len(latencies_s) < total and (message := consumer.poll(10)) is not None:
            value = message.value() or b""
            if len(value) == int(record_bytes) and (sent := struct.unpack_from("d", value)[0]) >= began:
                latencies_s.append(time.monotonic() - sent)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(total):
        time.sleep(max(began + number / rate - time.monotonic(), 0))
        producer.produce(topic, struct.pack("d", time.monotonic()) + padding, partition=0, on_delivery=_check)
        producer.poll(0)
    producer.flush(10)
    reader.join()
    if len(latencies_s) < total:
        sys.exit("latency: not all records were read back")
    latencies_s.sort()
    quantiles = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999, "max_us": 1.0}
    return _report(
        total, began, cpu, **{name: latencies_s[int((total - 1) * each)] * 1e6 for name, each in quantiles.items()}
    )


def tiny(bootstrap: str, topic: str, connections: str, window: str, seconds: str) -> dict[str, Any]:
    """Write to and read from one connection at a time; this keeps a broker busy, but does not reach its limit."""
    name = topic.encode()
    batch = record_batch(b"v" * 128, time.time_ns() // 1_000_000)
    request = struct.pack(">hhih", 0, 7, 0, len(CLIENT_ID)) + CLIENT_ID
    request += struct.pack(">hhiih", -1, 1, 30_000, 1, len(name)) + name + struct.pack(">iii", 1, 0, len(batch)) + batch
    frame = struct.pack(">i", len(request)) + request
    response_bytes = 4 + 4 + 4 + 2 + len(name) + 4 + 4 + 2 + 8 + 8 + 8 + 4
    host, port = bootstrap.rsplit(":", 1)
    sockets = [socket.create_connection((host, int(port))) for _ in range(int(connections))]
    for each in sockets:
        _exchange(each, frame, 1, response_bytes)
    began, cpu = wait_for_go()
    count = 0
    while time.monotonic() - began < float(seconds):
        for each in sockets:
            each.sendall(frame * int(window))
        for each in sockets:
            _exchange(each, b"", int(window), response_bytes)
            count += int(window)
    return _report(count, began, cpu)


def _exchange(connection: socket.socket, data: bytes, responses: int, response_bytes: int) -> None:
    connection.sendall(data)
    left = responses * response_bytes
    while left:
        got = len(connection.recv(min(left, 1 << 16)))
        if not got:
            sys.exit("tiny produce: the broker closed the connection")
        left -= got


def _report(messages: int, began: float, cpu: float, **more: Any) -> dict[str, Any]:
    return {
        "messages": messages,
        "seconds": time.monotonic() - began,
        "client_cpu_s": time.process_time() - cpu,
        **more,
    }


if __name__ == "__main__":
    main(sys.argv[1:])
