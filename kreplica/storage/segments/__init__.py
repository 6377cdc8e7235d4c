"""Segments of a log: files, indexes, validation of appended batches, descriptions of damage."""
