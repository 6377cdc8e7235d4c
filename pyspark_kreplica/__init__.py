"""Lets Spark find ``format("kreplica")`` by package name, without registration; the code is in ``kreplica.spark``."""

from kreplica.spark.data_source import KreplicaDataSource as DefaultSource

__all__ = ["DefaultSource"]
