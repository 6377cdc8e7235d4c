"""The Spark sink: writing rows to topics, at least once or exactly once."""
