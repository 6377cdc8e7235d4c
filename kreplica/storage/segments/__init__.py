"""Segments of a log: files, indexes, rules for new segments, validation of appended batches, descriptions of damage."""
