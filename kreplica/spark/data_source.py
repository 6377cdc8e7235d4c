"""The data source ``format("kreplica")``: creates the readers and writers that Spark requests."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kreplica.spark.sink.options import ExactlyOnce, SinkOptions, sink_options
from kreplica.spark.sink.row_columns import check_columns
from kreplica.spark.sink.writers import BatchWriter, ExactlyOnceBatchWriter, ExactlyOnceWriter, StreamWriter
from kreplica.spark.source.batch_read import BatchReader
from kreplica.spark.source.options import source_columns, source_options
from kreplica.spark.source.rows import spark_schema
from kreplica.spark.source.stream_read import StreamReader
from kreplica.spark.worker_processes import exempt_from_collection


class KreplicaDataSource(DataSource):
    """Table of records in a Kafka-compatible cluster, with the columns of Spark's built-in Kafka source.

    Spark calls these methods in separate processes. Each reader or writer is used to plan one job or to run one task,
    except the stream reader, which is used until its query ends.
    """

    @classmethod
    def name(cls) -> str:
        """Name of the format in ``format("kreplica")``."""
        return "kreplica"

    def schema(self) -> StructType:
        """Schema of the columns that the options select."""
        exempt_from_collection()
        return spark_schema(source_columns(self._given_options()))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create the reader for ``spark.read``.

        :raise ValueError: an option is invalid, or the user specified a different schema.
        """
        exempt_from_collection()
        options = source_options(self._given_options(), is_streaming=False)
        self._check_schema(schema)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Create the reader for ``spark.readStream``.

        :raise ValueError: an option is invalid, or the user specified a different schema.
        """
        exempt_from_collection()
        options = source_options(self._given_options(), is_streaming=True)
        self._check_schema(schema)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Create the writer for ``DataFrame.write``.

        :raise ValueError: an option or a column is invalid, or the save mode is ``overwrite``.
        """
        if overwrite:
            raise ValueError('topics cannot be overwritten: use .mode("append")')
        options = self._sink_options(schema)
        if options.exactly_once is ExactlyOnce.OFF:
            return BatchWriter(options)
        if options.sink_id is None or options.batch_id is None:
            raise ValueError(
                "option 'kreplica.exactly.once': a batch write also requires kreplica.sink.id and kreplica.batch.id, "
                "which identify the batch when it is retried"
            )
        return ExactlyOnceBatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Create the writer for ``DataFrame.writeStream``.

        :param overwrite: True in complete mode: each micro-batch writes the whole result again.
        :raise ValueError: an option or a column is invalid.
        """
        options = self._sink_options(schema)
        if options.batch_id is not None:
            raise ValueError("option 'kreplica.batch.id' is not valid for streams: Spark numbers their micro-batches")
        return StreamWriter(options) if options.exactly_once is ExactlyOnce.OFF else ExactlyOnceWriter(options)

    def _sink_options(self, schema: StructType) -> SinkOptions:
        exempt_from_collection()
        options = sink_options(self._given_options())
        check_columns(schema, options.topic)
        return options

    def _given_options(self) -> dict[str, str]:
        return dict(self.options.items())

    def _check_schema(self, schema: StructType) -> None:
        """Check the schema that the user specified.

        :raise ValueError: it differs from the source's fixed schema.
        """
        own = self.schema()
        if [(each.name, each.dataType) for each in schema.fields] != [
            (each.name, each.dataType) for each in own.fields
        ]:
            raise ValueError(f"the source kreplica has a fixed schema and accepts no other: {own.simpleString()}")
