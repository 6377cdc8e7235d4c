"""Segments of a log: files, indexes, rules for new segments, batch validation and damage detection."""
