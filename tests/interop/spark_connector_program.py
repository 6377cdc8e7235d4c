"""Spark's own connector and kreplica's side by side, as a separate process: ``python ... BOOTSTRAP FOLDER JAR,...``.

Prints one JSON object, which ``test_interop_spark_connector.py`` compares.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kreplica.spark.session import spark_session

COUNT = 900
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TRANSACTIONS = "transactions"
OURS, THEIRS = "kreplica", "kafka"


class Program:
    """:param bootstrap: bootstrap servers of the tested cluster."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder

    def run(self) -> dict[str, Any]:
        """Run all comparisons."""
        return {
            "schemas": [self.read(name, TRANSACTIONS).schema.simpleString() for name in (THEIRS, OURS)],
            "written": {writer: self.compare_codecs(writer) for writer in (THEIRS, OURS)},
            "isolation": {level: self.compare_transactions(level) for level in ("read_committed", "read_uncommitted")},
            "options": self.compare_options(),
            "handed_over": self.alternate_connectors(),
        }

    def rows(self, count: int = COUNT) -> DataFrame:
        """Return rows with keys (some null), values and headers."""
        return self._spark.range(count).selectExpr(
            "if(id % 10 = 0, null, binary(string(id % 50))) key",
            "binary(concat('value ', id)) value",
            "if(id % 3 = 0, array(named_struct('key', 'h', 'value', binary(string(id)))), null) headers",
        )

    def read(self, name: str, topic: str, **options: str) -> DataFrame:
        """Read a batch with one connector."""
        all_options = {
            "kafka.bootstrap.servers": self._bootstrap,
            "subscribe": topic,
            "includeHeaders": "true",
            **options,
        }
        return self._spark.read.format(name).options(**all_options).load()

    def write(self, name: str, topic: str, rows: DataFrame, **options: str) -> None:
        """Write a batch with one connector."""
        all_options = {"kafka.bootstrap.servers": self._bootstrap, "topic": topic, **options}
        rows.write.format(name).mode("append").options(**all_options).save()

    def compare_reads(self, topic: str, **options: str) -> dict[str, int]:
        """Return the number of rows of each connector, and of rows without an equal row of the other."""
        theirs, ours = (sorted(map(repr, self.read(name, topic, **options).collect())) for name in (THEIRS, OURS))
        return {"theirs": len(theirs), "ours": len(ours), "different": len(set(theirs) ^ set(ours))}

    def compare_codecs(self, writer: str) -> dict[str, int]:
        """Compare reads of a topic that one connector wrote in every codec."""
        topic = f"written-by-{writer}"
        for codec in CODECS:
            self.write(writer, topic, self.rows(), **{"kafka.compression.type": codec})
        return self.compare_reads(topic)

    def compare_transactions(self, level: str) -> dict[str, int]:
        """Compare reads of a topic with committed and aborted transactions."""
        return self.compare_reads(TRANSACTIONS, **{"kafka.isolation.level": level})

    def compare_options(self) -> dict[str, dict[str, int]]:
        """Compare reads with start and end options, and with more tasks than partitions."""
        topic = f"written-by-{THEIRS}"
        times = sorted(row.timestamp for row in self.read(THEIRS, topic).select("timestamp").collect())
        middle = int(times[len(times) // 2].timestamp() * 1000)
        part = json.dumps({topic: {"0": 10, "1": -2, "2": 30}})
        return {
            "startingTimestamp": self.compare_reads(topic, startingTimestamp=str(middle)),
            "startingOffsets": self.compare_reads(topic, startingOffsets=part),
            "endingOffsets": self.compare_reads(topic, endingOffsets=json.dumps({topic: {"0": 50, "1": 70, "2": -1}})),
            "minPartitions": self.compare_reads(topic, minPartitions="7"),
        }

    def alternate_connectors(self) -> dict[str, Any]:
        """Stream from topic to topic with the one connector, the other, and the first again, three times."""
        checkpoint = self._folder / "checkpoint"
        copied = []
        for name in (THEIRS, OURS, THEIRS):
            self.write(OURS, "stream", self.rows())
            self._stream(name, checkpoint)
            copied.append(self.read(OURS, "stream-copy").count())
        same = (
            self.read(OURS, "stream")
            .select("key", "value")
            .exceptAll(self.read(THEIRS, "stream-copy").select("key", "value"))
        )
        offsets = [path.read_text().splitlines()[-1] for path in sorted(checkpoint.glob("offsets/[0-9]*"))]
        return {"copied": copied, "missing": same.count(), "offsets": [json.loads(each) for each in offsets]}

    def _stream(self, name: str, checkpoint: Path) -> None:
        all_options = {"kafka.bootstrap.servers": self._bootstrap}
        stream = self._spark.readStream.format(name).options(
            **all_options, subscribe="stream", startingOffsets="earliest", maxOffsetsPerTrigger="500"
        )
        writing = stream.load().select("key", "value").writeStream.format(name)
        query = writing.options(**all_options, topic="stream-copy", checkpointLocation=str(checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()


def main(bootstrap: str, folder: str, jars: str) -> None:
    """Start Spark with the connector's jars, and print the results."""
    settings = {"spark.jars": jars, "spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false"}
    spark = spark_session("connectors", master="local[2]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        print(json.dumps(Program(spark, bootstrap, Path(folder)).run()))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
