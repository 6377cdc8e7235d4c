"""Commands that copy, export and import topics."""
