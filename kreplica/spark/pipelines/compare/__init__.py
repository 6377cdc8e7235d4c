"""Comparison of an archive with a topic."""
