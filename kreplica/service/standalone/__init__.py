"""Standalone clusters: an embedded coordinator and brokers in one process or several."""
