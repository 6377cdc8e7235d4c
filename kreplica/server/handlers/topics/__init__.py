"""Handlers of the APIs that create, change, delete and query topics and partitions."""
