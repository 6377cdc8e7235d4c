"""A streaming query that copies one topic to another exactly once, in a given session or as a separate process.

python failing_query.py '{"bootstrap": ..., "checkpoint": ...}'
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "sent"
ROWS_PER_BATCH = 80


@dataclass(frozen=True)
class Copy:
    """Target and options of the query.

    :param lanes: maximum number of tasks.
    """

    bootstrap: str
    topic: str
    checkpoint: str
    plan: str
    mode: str = "many"
    lanes: int = 4
    timeout_s: float = 800.0

    def run(self, spark: SparkSession) -> None:
        """Copy all records in micro-batches; raise the query's error."""
        from failing_sink import FailingSource

        spark.sparkContext.addPyFile(str(Path(__file__).with_name("failing_sink.py")))
        spark.dataSource.register(FailingSource)
        brokers = {"kafka.bootstrap.servers": self.bootstrap}
        begin = {"subscribe": SOURCE, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ROWS_PER_BATCH)}
        frame = spark.readStream.format("kreplica").options(**brokers, **begin).load()
        sink = frame.select("key", "value").coalesce(self.lanes).writeStream.format("kreplica_failing")
        sink_options = {"topic": self.topic, "kreplica.exactly.once": self.mode, "failing.plan": self.plan}
        query = (
            sink.options(**brokers, **sink_options, checkpointLocation=self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(self.timeout_s):
            query.stop()
            raise TimeoutError("the query did not end in time")


def command(copy: Copy) -> list[str]:
    """Return the command of a process that runs the query."""
    return [sys.executable, __file__, json.dumps(asdict(copy))]


def main() -> None:
    """Run the query in a session that tries each task three times."""
    from kreplica.spark.session import spark_session

    session = spark_session("copy", master="local[2,3]", settings={"spark.driver.memory": "512m"})
    session.sparkContext.setLogLevel("ERROR")
    Copy(**json.loads(sys.argv[1])).run(session)
    session.stop()


if __name__ == "__main__":
    main()
