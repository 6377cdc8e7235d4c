"""Creation and removal of a topic with a thousand partitions do not block the event loop."""

from __future__ import annotations

from uuid import UUID

import pytest
from storage_world import batch
from test_storage_directories import Broker

from kreplica.model import TopicPartition
from kreplica.storage import LogConfig
from kreplica.storage.log.appending import append_as_leader

KEYS = [TopicPartition("wide", number) for number in range(120)]
TOPIC_ID = UUID(int=9)


def make(broker, keys=KEYS):
    broker.run(broker.directories.create_directories([(key, TOPIC_ID) for key in keys]))


def test_logs_created_together_are_spread_and_kept():
    """The logs are created in the directories with the fewest logs, have their topic ID, and survive a restart."""
    broker = Broker().start()
    make(broker)
    for key in KEYS:
        broker.directories.create(key, TOPIC_ID, LogConfig())
    assert [len(directory.logs) for directory in broker.directories.directories] == [60, 60]
    append_as_leader(broker.directories.logs[KEYS[7]], batch("a"), 0, now_ms=1)
    broker.stop()
    broker.start()
    assert len(broker.directories.logs) == 120
    assert broker.directories.logs[KEYS[7]].log_end_offset == 1
    assert {broker.directories.topic_id(key) for key in KEYS} == {TOPIC_ID}
    broker.stop()


def test_error_of_one_log_does_not_affect_others():
    """The disk refuses one directory: only its log cannot be created."""
    broker = Broker().start()
    broker.disk.fail("write", "*wide-3/partition.metadata*")
    make(broker)
    for key in KEYS:
        if key.partition == 3:
            with pytest.raises(OSError):
                broker.directories.create(key, TOPIC_ID, LogConfig())
        else:
            broker.directories.create(key, TOPIC_ID, LogConfig())
    assert len(broker.directories.logs) == 119
    broker.stop()


def test_existing_log_directory_is_opened():
    """The log is not treated as an empty one."""
    broker = Broker(paths=["/data"])
    broker.start()
    log = broker.directories.create(KEYS[0], TOPIC_ID, LogConfig())
    append_as_leader(log, batch("a"), 0, now_ms=1)
    path = log.path
    broker.stop()
    broker.disk.rename(path, "/data/.elsewhere")
    broker.start()
    broker.disk.rename("/data/.elsewhere", path)
    make(broker, KEYS[:1])
    assert broker.directories.create(KEYS[0], TOPIC_ID, LogConfig()).log_end_offset == 1
    broker.stop()
