"""``format("kreplica")``: what Spark makes first, and asks for readers and writers."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from kreplica.spark.batch_read import BatchReader
from kreplica.spark.options import source_columns, source_options
from kreplica.spark.rows import spark_schema
from kreplica.spark.stream_read import StreamReader


class KreplicaDataSource(DataSource):
    """A table of a Kafka-compatible cluster's records, with the columns of Spark's own Kafka source.

    Spark calls these methods in processes of its own; every object here lives for one planning or one task, but for the
    stream reader, which lives as long as its query.
    """

    @classmethod
    def name(cls) -> str:
        """As users write it."""
        return "kreplica"

    def schema(self) -> StructType:
        """The columns."""
        return spark_schema(source_columns(self._given()))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``.

        :raise ValueError: an option is wrong, or the user gave a schema.
        """
        options = source_options(self._given(), is_streaming=False)
        self._refuse_other(schema)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For ``spark.readStream``.

        :raise ValueError: an option is wrong, or the user gave a schema.
        """
        options = source_options(self._given(), is_streaming=True)
        self._refuse_other(schema)
        return StreamReader(options)

    def _given(self) -> dict[str, str]:
        return dict(self.options.items())

    def _refuse_other(self, schema: StructType) -> None:
        """Spark hands over whatever schema the user gave."""
        own = self.schema()
        if [(each.name, each.dataType) for each in schema.fields] != [
            (each.name, each.dataType) for each in own.fields
        ]:
            raise ValueError(f"the source kreplica has a fixed schema, and takes no other: {own.simpleString()}")
