"""Makes ``kafka-3.9-clean.tar.xz`` and ``kafka-3.9-killed.tar.xz``: log directories that Apache Kafka 3.9 wrote.

Run it from the root of the repository, with Java and Maven installed: ``.venv/bin/python PATH/make_kafka_directory.py``

A broker with its ZooKeeper runs on loopback; confluent-kafka produces:

* ``codecs-0`` one batch of 10 records per codec, with keys, headers and timestamps
* ``rolled.small-segments-0`` 200 records of an idempotent producer, in segments of 2 KB
* ``compacted_topic-0`` 600 updates of 20 keys and 2 tombstones, cleaned by Kafka before it stopped
* ``transactions-0`` one committed, one aborted and one open transaction

and the same directory twice: after an orderly stop, and after ``kill -9`` of the restarted broker, which had written
the same 50 records to ``codecs-0`` again, one second later.  ``kafka-3.9-killed-dump.json`` is the output of Kafka's
DumpLogSegments for the second.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "interop"))

import apache_kafka  # noqa: E402

FIRST_TIMESTAMP_MS = 1_700_000_000_000
TOPICS = {
    "codecs": {},
    "rolled.small-segments": {"segment.bytes": "2048", "index.interval.bytes": "256"},
    "compacted_topic": {
        "cleanup.policy": "compact",
        "segment.bytes": "4096",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "500",
    },
    "transactions": {},
}


def produce_codecs(servers: str, first: int) -> None:
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 200})
        for index in range(10):
            producer.produce(
                "codecs",
                value=f"{codec} value {index} ".encode() * 5,
                key=f"key {index}".encode() if index % 2 else None,
                headers=[("codec", codec.encode()), ("empty", None)],
                timestamp=FIRST_TIMESTAMP_MS + first + number * 100 + index,
            )
        producer.flush()


def produce_rolled(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
    for index in range(200):
        producer.produce("rolled.small-segments", f"record {index}".ljust(60), timestamp=FIRST_TIMESTAMP_MS + index)
        if index % 5 == 4:
            producer.flush()
    producer.flush()


def produce_compacted(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "compression.type": "lz4"})
    for index in range(600):
        producer.produce("compacted_topic", f"value {index}".ljust(50), key=f"key {index % 20}")
        if index % 10 == 9:
            producer.flush()
    for key in ("key 3", "key 7"):
        producer.produce("compacted_topic", None, key=key)
    producer.flush()
    time.sleep(1)
    producer.produce("compacted_topic", "the last one", key="another key")  # rolls, so that the rest can be cleaned
    producer.flush()


def produce_transactions(servers: str) -> None:
    ends = {"committed": Producer.commit_transaction, "aborted": Producer.abort_transaction, "open": None}
    for name, end in ends.items():
        producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
        producer.init_transactions()
        producer.begin_transaction()
        for index in range(5):
            producer.produce("transactions", f"{name} {index}")
        producer.flush()
        if end is not None:
            end(producer)


def wait_until_cleaned(log_directory: Path) -> None:
    checkpoint = log_directory / "cleaner-offset-checkpoint"
    for _ in range(300):
        if checkpoint.exists() and "compacted_topic 0 " in checkpoint.read_text():
            time.sleep(1)
            return
        time.sleep(0.1)
    raise SystemExit("Kafka did not clean the compacted topic within 30 s")


def pack(log_directory: Path, name: str) -> None:
    """Archive a broker's directory without the coordinators' topics; file sizes are unchanged."""
    with tarfile.open(HERE / name, "w:xz") as archive:
        for path in sorted(log_directory.rglob("*")):
            if path.is_file() and not path.relative_to(log_directory).parts[0].startswith("__"):
                member = tarfile.TarInfo(str(path.relative_to(log_directory)))
                member.size = path.stat().st_size
                with open(path, "rb") as content:
                    archive.addfile(member, content)


def main() -> None:
    work = Path(tempfile.mkdtemp(prefix="kafka-directory-"))
    logs = work / "logs"
    settings = {
        "log_cleaner_backoff_ms": 500,
        "log_segment_delete_delay_ms": 100,
        "log_index_size_max_bytes": 1200,
        "log_initial_task_delay_ms": 0,
    }
    with apache_kafka.zookeeper(work) as zookeeper:
        with apache_kafka.broker(work, zookeeper, logs, **settings) as broker:
            servers = broker.bootstrap_servers
            admin = AdminClient({"bootstrap.servers": servers})
            topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
            for future in admin.create_topics(topics).values():
                future.result(30)
            produce_codecs(servers, 0)
            produce_rolled(servers)
            produce_compacted(servers)
            produce_transactions(servers)
            wait_until_cleaned(logs)
            broker.stop()
        pack(logs, "kafka-3.9-clean.tar.xz")
        with apache_kafka.broker(work, zookeeper, logs, **settings) as broker:
            produce_codecs(broker.bootstrap_servers, 1000)
            broker.kill()
        pack(logs, "kafka-3.9-killed.tar.xz")
    dumps = {
        path.relative_to(logs).as_posix(): apache_kafka.dump_log("--files", str(path), "--print-data-log").splitlines()
        for path in sorted(logs.glob("*/*.log"))
        if not path.relative_to(logs).parts[0].startswith("__")
    }
    (HERE / "kafka-3.9-killed-dump.json").write_text(json.dumps(dumps, indent=0))
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
