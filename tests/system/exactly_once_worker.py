"""One worker of a chain: consumes, transforms, produces, and commits both in one transaction, until it is stopped.

python exactly_once_worker.py BOOTSTRAP GROUP TRANSACTIONAL_ID SOURCE TARGET BATCH_MAX SEED

Some transactions are aborted on purpose.  It prints a line for each transaction, and ends with code 3 after a fatal
error of its producer, so that another worker is started.  SIGALRM ends a hanging transaction: librdkafka waits forever
for a coordinator that vanished (confluentinc/librdkafka issues 5456 and 5511), so that only a signal ends it.
"""

import random
import signal
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

ABORTED_SHARE = 0.1
TIMEOUT_S = 60
HANGING_S = 30

bootstrap, group, transactional_id, source, target, batch_max, seed = sys.argv[1:]
chance = random.Random(int(seed))


def transform(value):
    """Return a value that can be verified and counted."""
    return b"seen " + value


def rewind(consumer):
    """Seek back to the committed offsets, to consume the records of the aborted transaction again."""
    assigned = consumer.assignment()
    if assigned:
        for committed in consumer.committed(assigned, timeout=TIMEOUT_S):
            offset = committed.offset if committed.offset >= 0 else 0
            consumer.seek(TopicPartition(committed.topic, committed.partition, offset))


def abort(producer, consumer, why):
    print("aborted", why, flush=True)
    producer.abort_transaction(TIMEOUT_S)
    rewind(consumer)


def step(producer, consumer):
    """Run one transaction with the records that are available."""
    messages = [message for message in consumer.consume(int(batch_max), 0.5) if not message.error()]
    if not messages:
        return
    producer.begin_transaction()
    try:
        for message in messages:
            producer.produce(target, transform(message.value()), message.key(), partition=message.partition())
            producer.poll(0)
        if chance.random() < ABORTED_SHARE:
            producer.flush(TIMEOUT_S)
            abort(producer, consumer, "on purpose")
            return
        positions = consumer.position(consumer.assignment())
        known = [position for position in positions if position.offset >= 0]
        producer.send_offsets_to_transaction(known, consumer.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
        print("committed", len(messages), flush=True)
    except KafkaException as failed:
        error = failed.args[0]
        if not error.txn_requires_abort():
            raise
        abort(producer, consumer, error.name())


def log_error(error):
    """Log an error, from which librdkafka usually recovers by itself."""
    print("error", error, file=sys.stderr, flush=True)


def main():
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "partition.assignment.strategy": "range",
            "error_cb": log_error,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
            "linger.ms": 5,
            "error_cb": log_error,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([source])
    while True:
        signal.alarm(HANGING_S)
        step(producer, consumer)


try:
    main()
except KafkaException as failed:
    reason = failed.args[0]
    print("gives up:", reason.name() if isinstance(reason, KafkaError) else reason, flush=True)
    sys.exit(3)
