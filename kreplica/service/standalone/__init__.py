"""Standalone clusters: an embedded ZooKeeper server and brokers, in one process or several."""
