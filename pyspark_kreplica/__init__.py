"""The name by which Spark finds ``format("kreplica")`` without registration; everything is in ``kreplica.spark``."""

from kreplica.spark.data_source import KreplicaDataSource as DefaultSource

__all__ = ["DefaultSource"]
