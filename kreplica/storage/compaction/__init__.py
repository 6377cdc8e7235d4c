"""Compaction of logs by key."""
