"""Segments of a log: files, indexes, rules for new segments, batch validation, descriptions of damage."""
