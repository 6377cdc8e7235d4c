"""Options are parsed as in Spark's Kafka source, and errors name the option."""

from __future__ import annotations

import logging
import pickle
import re

import pytest

from kreplica.client_core.fetched_batches import Isolation
from kreplica.model import TopicPartition
from kreplica.spark.source.options import COLUMNS, Partitions, TopicPattern, Topics, source_columns, source_options
from kreplica.spark.source.positions import AtTime, CommonOffset, NoMatch, PartitionOffsets, as_json, from_json

BROKERS = {"kafka.bootstrap.servers": "a:9092"}


def options(is_streaming: bool = False, **values: str):
    return source_options({**BROKERS, "subscribe": "t", **values}, is_streaming=is_streaming)


def test_defaults() -> None:
    """By default, a batch reads all records, and a stream only new ones."""
    batch, stream = options(), options(is_streaming=True)
    assert batch.selection == Topics(("t",))
    assert (batch.starting, batch.ending) == (CommonOffset(-2), CommonOffset(-1))
    assert stream.starting == CommonOffset(-1)
    assert batch.columns == COLUMNS
    assert batch.fail_on_data_loss
    assert pickle.loads(pickle.dumps(stream)) == stream


def test_names_in_any_case() -> None:
    """Option names are case-insensitive, because Spark passes them in lower case."""
    found = source_options(
        {
            "KAFKA.bootstrap.servers": "a:1,b:2",
            "SUBSCRIBEpattern": "t.*",
            "startingoffsets": " Earliest ",
            "failondataloss": "FALSE",
            "maxoffsetspertrigger": "100",
            "maxtriggerdelay": "5m",
            "kafka.isolation.level": "read_committed",
            "kafka.request.timeout.ms": "1500",
            "kafkaConsumer.pollTimeoutMs": "700",
            "includeheaders": "true",
            "fetchOffset.numRetries": "0",
        },
        is_streaming=True,
    )
    assert found.bootstrap == "a:1,b:2"
    assert found.selection == TopicPattern("t.*")
    assert found.starting == CommonOffset(-2)
    assert not found.fail_on_data_loss
    assert (found.offsets_per_trigger_max, found.trigger_delay_s_max) == (100, 300.0)
    assert found.settings.isolation is Isolation.READ_COMMITTED
    assert found.settings.client.request_timeout_s == 1.5
    assert (found.poll_timeout_s, found.offset_retries) == (0.7, 0)
    assert found.columns[-1] == "headers"


def test_partitions_offsets_and_times() -> None:
    """Timestamps override offsets, and a timestamp for all partitions overrides timestamps per partition."""
    t0, t1 = TopicPartition("t", 0), TopicPartition("t", 1)
    found = source_options(
        {**BROKERS, "assign": '{"t": [0, 1]}', "startingOffsets": '{"t": {"0": 23, "1": -2}}'}, is_streaming=False
    )
    assert found.selection == Partitions(frozenset({t0, t1}))
    assert found.starting == PartitionOffsets({t0: 23, t1: -2})
    times = {"startingOffsetsByTimestamp": '{"t": {"0": 1000}}', "startingOffsets": "earliest"}
    assert options(**times).starting == AtTime({t0: 1000})
    found = options(**times, startingTimestamp="5", startingOffsetsByTimestampStrategy="latest")
    assert found.starting == AtTime(common_ms=5, no_match=NoMatch.LATEST)
    assert options(endingTimestamp="9").ending == AtTime(common_ms=9, no_match=NoMatch.LATEST)
    assert as_json({t1: 5, t0: 4}) == {"t": {"0": 4, "1": 5}}
    assert from_json({"t": {"0": 4, "1": 5}}) == {t0: 4, t1: 5}


def test_subset_of_columns() -> None:
    """Columns are returned in the requested order."""
    assert source_columns({"Kreplica.Columns": "value, offset"}) == ("value", "offset")
    assert source_columns({"kreplica.columns": "headers"}) == ("headers",)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"subscribePattern": "x"}, "only one of"),
        ({"subscribe": " , "}, "is empty"),
        ({"kafka.bootstrap.servers": ""}, "'kafka.bootstrap.servers' must be given"),
        ({"kafka.bootstrap.servers": "nonsense"}, "HOST:PORT is expected"),
        ({"startingOffsets": "middle"}, "'startingOffsets'"),
        ({"startingOffsets": "latest"}, "would return no records"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "cannot start at latest"),
        ({"endingOffsets": "earliest"}, "would return no records"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "cannot end at earliest"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "an integer of at least -2"),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "'x' is not a partition"),
        ({"startingOffsets": '{"t": 1}'}, "expected an object"),
        ({"startingTimestamp": "-1"}, "an integer of at least 0"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "error or latest"),
        ({"maxOffsetsPerTrigger": "0"}, "an integer of at least 1"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"minPartitions": "0"}, "an integer of at least 1"),
        ({"kafka.auto.offset.reset": "latest"}, "startingOffsets"),
        ({"kafka.isolation.level": "x"}, "'kafka.isolation.level'"),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism is not set: SASL_SSL needs it"),
        ({"startingOfsets": "earliest"}, "'startingofsets' is not an option"),
        ({"kreplica.columns": "value,value"}, "'value'"),
        ({"kreplica.columns": ","}, "is empty"),
        ({"kreplica.source": "segments"}, "must be set together"),
    ],
)  # fmt: skip
def test_errors_name_the_option(values: dict[str, str], text: str) -> None:
    """The error names the option, and states the expected value or the reason."""
    with pytest.raises(ValueError, match=re.escape(text)):
        options(**values)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"endingOffsets": "latest"}, "not valid in streaming"),
        ({"maxTriggerDelay": "soon"}, "expected a duration"),
        ({"assign": "[1]"}, "only one of"),
    ],
)
def test_errors_of_streaming_options(values: dict[str, str], text: str) -> None:
    """For a stream, batch options are errors too."""
    with pytest.raises(ValueError, match=re.escape(text)):
        options(is_streaming=True, **values)


def test_unsupported_client_settings_log_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Settings of Kafka's client that have no effect here are ignored with a warning."""
    with caplog.at_level(logging.WARNING):
        options(**{"kafka.metrics.num.samples": "2", "kafka.client.id": "me"}, maxOffsetsPerTrigger="5")
    assert "kafka.metrics.num.samples" in caplog.text
    assert "maxOffsetsPerTrigger is ignored in batch" in caplog.text
    assert "client.id" not in caplog.text
