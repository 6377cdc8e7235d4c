"""The log of one partition: segments, indexes, appends, reads and truncation."""
