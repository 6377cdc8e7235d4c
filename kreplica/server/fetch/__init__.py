"""The fetch path: sessions, reads of partitions, and fetches that wait for data."""
